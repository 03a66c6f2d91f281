package main

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// checkoutRoot is the top of the checkout, as seen from this package.
const checkoutRoot = "../.."

// renderedPages returns all generated pages. They are rendered once, because that is slow.
func renderedPages(t *testing.T) map[string]string {
	t.Helper()
	pages, err := renderOnce()
	if err != nil {
		t.Fatal(err)
	}
	return pages
}

var renderOnce = sync.OnceValues(func() (map[string]string, error) { return renderPages(checkoutRoot) })

func TestPages_AreUpToDate(t *testing.T) {
	pages := renderedPages(t)
	for name, want := range pages {
		committed, err := os.ReadFile(filepath.Join(checkoutRoot, referenceDir, name))
		if err != nil || string(committed) != want {
			t.Errorf("%s/%s is out of date; run make generate (%v)", referenceDir, name, err)
		}
	}
}

func TestPages_AreTheOnlyOnesInGeneratedFolders(t *testing.T) {
	pages := renderedPages(t)
	for _, dir := range generatedDirs {
		entries, err := os.ReadDir(filepath.Join(checkoutRoot, referenceDir, dir))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if _, ok := pages[dir+"/"+e.Name()]; !ok {
				t.Errorf("%s/%s/%s is not generated; run make generate", referenceDir, dir, e.Name())
			}
		}
	}
}

func TestKinds_HaveHandwrittenPages(t *testing.T) {
	pages := map[string]string{}
	if err := renderFields(checkoutRoot, pages); err != nil {
		t.Fatal(err)
	}
	for kind, page := range handwrittenPages {
		if _, ok := pages["fields/"+kind+".md"]; !ok {
			t.Errorf("%s: is no kind", kind)
		}
		if _, err := os.Stat(filepath.Join(checkoutRoot, referenceDir, "kinds", page+".md")); err != nil {
			t.Error(err)
		}
	}
	if len(pages) != len(handwrittenPages) {
		t.Errorf("%d kinds, but %d have a page", len(pages), len(handwrittenPages))
	}
}
