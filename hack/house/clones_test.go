package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCountDuplicateHelpers(t *testing.T) {
	tree := newTree(map[string]string{
		"internal/controllers/a/a.go": "package a\n\nfunc (p *plan) requeueAt(at time.Time) {\n\tif p.out.At.IsZero() {\n\t\tp.out.At = at\n\t}\n}\n",
		"internal/controllers/b/b.go": "package b\n\nfunc list() {\n\tx := metav1.GetControllerOf(o)\n\tuse(x)\n}\n\nfunc other() {\n\tuse(y)\n}\n",
	})
	clones := parseClones(strings.Join([]string{
		"internal/controllers/a/a.go:4-6: duplicate of internal/controllers/c/c.go:10-12", // by the name of its function
		"internal/controllers/b/b.go:4-5: duplicate of internal/controllers/c/c.go:20-21", // by its lines
		"internal/controllers/b/b.go:9-9: duplicate of internal/controllers/c/c.go:30-30", // no helper
		"internal/controllers/gone.go:1-2: duplicate of internal/controllers/c/c.go:1-2",
		"Found total 3 clone groups.",
	}, "\n"))
	got, offenders := countDuplicateHelpers(clones)(tree)
	checkFigure(t, got, 2, offenders,
		"internal/controllers/a/a.go:4: 3 lines like internal/controllers/c/c.go:10-12",
		"internal/controllers/b/b.go:4: 2 lines like internal/controllers/c/c.go:20-21")
}

// A new version of dupl may print another format, which would look like a figure of 0.
func TestFindClones_RunsDupl(t *testing.T) {
	repository, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	program, err := locateDupl(repository)
	if err != nil {
		t.Skip("needs bin/dupl: run make house once")
	}
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(program, filepath.Join(root, "bin", "dupl")); err != nil {
		t.Fatal(err)
	}
	contents := map[string]string{}
	for _, name := range []string{"a", "b"} {
		p := clonesRoot + name + "/plan.go"
		contents[p] = "package " + name + "\n\nfunc (p *plan) wake(at time.Time) {\n\tif p.out.WakeAt.IsZero() || at.Before(p.out.WakeAt) {\n\t\tp.out.WakeAt = at\n\t}\n}\n"
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, p)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, p), []byte(contents[p]), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	tree := newTree(contents)
	clones, err := findClones(root, tree)
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := countDuplicateHelpers(clones)(tree); got != 2 {
		t.Errorf("got %v of %+v, want both copies", got, clones)
	}
}
