package config

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// Helm reads no file outside of the chart's directory and reports no missing one, so the chart
// has copies.
func TestChart_HasCopiesOfTheManifests(t *testing.T) {
	const copies = "../charts/k8s4r/files"
	var want, got []string
	for _, dir := range []string{"admission", "crd", "defaults", "rbac", "webhook"} {
		names, err := fs.Glob(FS, dir+"/*.yaml")
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, names...)
		copied, err := filepath.Glob(filepath.Join(copies, dir, "*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range copied {
			got = append(got, dir+"/"+filepath.Base(path))
		}
	}
	if !slices.Equal(got, want) {
		t.Fatalf("the chart has %q, not %q: run make generate", got, want)
	}
	for _, name := range want {
		original, err := fs.ReadFile(FS, name)
		if err != nil {
			t.Fatal(err)
		}
		if text, err := os.ReadFile(filepath.Join(copies, name)); err != nil || !bytes.Equal(text, original) {
			t.Errorf("%s: %v; the chart's is another: run make generate", name, err)
		}
	}
}
