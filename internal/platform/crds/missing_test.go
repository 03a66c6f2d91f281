package crds

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func TestMissingFields(t *testing.T) {
	ours := `{properties: {spec: {properties: {name: {}, suspend: {}, steps: {items: {properties: {name: {}, retry: {properties: {limit: {}}}}}}, params: {additionalProperties: {properties: {x: {}}}}}}}}`
	for _, c := range []struct{ name, in, want string }{
		{"an equal schema", ours, ""},
		{"an empty schema", `{}`, ".spec"},
		{"a schema that preserves unknown fields", `{properties: {spec: {x-kubernetes-preserve-unknown-fields: true}}}`, ""},
		{"only the outermost missing field is returned, in lists and maps as well",
			`{properties: {spec: {properties: {name: {}, steps: {items: {properties: {name: {}}}}, params: {additionalProperties: {}}}}}}`,
			".spec.params.*.x .spec.steps[].retry .spec.suspend"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := strings.Join(missingPaths(parse(t, ours), parse(t, c.in)), " "); got != c.want {
				t.Errorf("%q", got)
			}
		})
	}
}

// The stored version is compared: of an older one that is served as well, no object is read.
func TestMissingFields_ComparesTheStoredVersion(t *testing.T) {
	crd := func(stored string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: parse(t, `{spec: {versions: [
			{name: v1alpha1, storage: false, schema: {openAPIV3Schema: {}}},
			{name: v1, storage: true, schema: {openAPIV3Schema: `+stored+`}}]}}`)}
	}
	const ours = `{properties: {spec: {properties: {name: {}, suspend: {}}}}}`
	for in, want := range map[string]string{ours: "", `{properties: {spec: {properties: {name: {}}}}}`: ".spec.suspend"} {
		if got := strings.Join(MissingFields(crd(ours), crd(in)), " "); got != want {
			t.Errorf("%s: %q, want %q", in, got, want)
		}
	}
}

func parse(t *testing.T, text string) map[string]any {
	t.Helper()
	var out map[string]any
	if err := yaml.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}
