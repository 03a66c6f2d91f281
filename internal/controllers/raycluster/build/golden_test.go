package build_test

import (
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"k8s4r.io/k8s4r/internal/controllers/raycluster/build"
	"k8s4r.io/k8s4r/internal/controllers/raycluster/build/buildtest"
	"k8s4r.io/k8s4r/internal/testkit/golden"
)

// TestGolden compares the objects of each manifest with reviewed output.
func TestGolden(t *testing.T) {
	manifests, err := filepath.Glob("testdata/*.manifest.yaml")
	if err != nil || len(manifests) < 25 {
		t.Fatal(len(manifests), err)
	}
	for _, file := range manifests {
		name := strings.TrimSuffix(filepath.Base(file), ".manifest.yaml")
		t.Run(name, func(t *testing.T) {
			s, c, err := buildtest.Load(file)
			if err != nil {
				t.Fatal(err)
			}
			if bad := build.Validate(c); len(bad) > 0 {
				t.Fatalf("%v", bad)
			}
			before := c.DeepCopy()
			golden.Equal(t, name, print(t, buildtest.Objects(s, c)))
			if !reflect.DeepEqual(before, c) {
				t.Error("the cluster was changed")
			}
		})
	}
}

// print returns the objects as YAML documents, without empty fields.
func print(t *testing.T, objects []client.Object) string {
	t.Helper()
	var b strings.Builder
	for _, o := range objects {
		text, err := yaml.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		var plain map[string]any
		if err := yaml.Unmarshal(text, &plain); err != nil {
			t.Fatal(err)
		}
		delete(plain, "status")
		meta := plain["metadata"].(map[string]any)
		delete(meta, "creationTimestamp")
		if text, err = yaml.Marshal(plain); err != nil {
			t.Fatal(err)
		}
		b.WriteString("--- # " + reflect.TypeOf(o).Elem().Name() + "\n" + string(text))
	}
	return b.String()
}
