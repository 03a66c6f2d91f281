package main

import "testing"

func TestCheckImport(t *testing.T) {
	for _, c := range []struct{ file, imported, want string }{
		{"internal/core/flow/graph/dag.go", "api/flow/v1alpha1", ""},
		{"internal/core/flow/graph/dag.go", "internal/core/naming", ""},
		{"internal/server/gateway/a.go", "internal/protocol/wire", ""},
		{"cmd/k8s4r/main.go", "internal/cli", ""},
		{"standalone/internal/up/up.go", "standalone/internal/component", ""},
		{"internal/controllers/job/a.go", "internal/controllers/kit", ""},
		{"internal/controllers/raycluster/a.go", "internal/controllers/raycluster/build", ""},
		{"internal/testkit/a.go", "internal/server", ""},
		{"test/bench/agent/main.go", "internal/testkit", ""},

		{"internal/core/flow/graph/dag.go", "internal/robot/template", "core is below robot"},
		{"internal/protocol/wire/a.go", "internal/core/lifecycle", "protocol is below core"},
		{"api/robot/v1alpha1/a.go", "internal/protocol/wire", "api and protocol are siblings"},
		{"internal/server/a.go", "internal/cli", "server and cli are siblings"},
		{"internal/controllers/job/a.go", "internal/controllers/task", "controllers do not import each other"},
		{"internal/cli/a.go", "internal/testkit", "testkit is for tests and tools only"},
		{"internal/cli/a.go", "hack/house", "hack is for tests and tools only"},
		{"internal/odd/a.go", "internal/core/naming", "odd is in no layer"},
		{"internal/cli/a.go", "internal/odd", "odd is in no layer"},
	} {
		if got := checkImport(c.file, c.imported); got != c.want {
			t.Errorf("%s imports %s: got %q, want %q", c.file, c.imported, got, c.want)
		}
	}
}

func TestCountUpwardImports(t *testing.T) {
	tree := newTree(map[string]string{
		"internal/core/a/a.go":      "package a\n\nimport (\n\t\"fmt\"\n\n\t_ \"k8s4r.io/k8s4r/internal/cli\"\n\t_ \"k8s4r.io/k8s4r/api/x\"\n)\n",
		"internal/core/a/a_test.go": "package a\n\nimport _ \"k8s4r.io/k8s4r/internal/cli\"\n",
		"internal/core/a/broken.go": "package a\n\nfunc {\n",
	})
	got, offenders := countUpwardImports(tree)
	checkFigure(t, got, 1, offenders, "internal/core/a/a.go:6: imports internal/cli: core is below cli")
	if len(tree.unparsed) != 1 {
		t.Errorf("got %q, want one line about broken.go", tree.unparsed)
	}
}

func TestCountInternalFolders(t *testing.T) {
	tree := newTree(map[string]string{"internal/a/x/x.go": "", "internal/a/a.go": "", "internal/b/b.txt": "", "internal/doc.go": "", "api/c/c.go": ""})
	got, offenders := countInternalFolders(tree)
	checkFigure(t, got, 2, offenders, "internal/a: folder", "internal/b: folder")
}

// An exception that is not needed any more would hide the next mistake.
func TestAllowedSiblingsHaveReasons(t *testing.T) {
	for _, s := range allowedSiblings {
		if s.reason == "" || findLayer(s.from) != findLayer(s.to) || findLayer(s.from) < 0 {
			t.Errorf("%s imports %s: needs a reason, and both folders in one layer", s.from, s.to)
		}
	}
}
