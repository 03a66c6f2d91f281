// Command docs writes the generated pages of docs/reference: the command line and the flags of the
// programs, the fields of the kinds, and the conditions and reasons. Its test fails if a page is
// not what its sources make of it.
package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// referenceDir holds the generated pages, relative to the checkout.
const referenceDir = "docs/reference"

// generatedDirs are folders of referenceDir that hold generated pages only.
var generatedDirs = []string{"cli", "fields"}

func main() {
	if err := writePages("."); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// writePages writes all pages below the checkout at root. It removes pages that are not generated
// any more.
func writePages(root string) error {
	pages, err := renderPages(root)
	if err != nil {
		return err
	}
	for _, dir := range generatedDirs {
		if err := os.RemoveAll(filepath.Join(root, referenceDir, dir)); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(pages)) {
		file := filepath.Join(root, referenceDir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(pages[name]), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// renderPages returns the text of each page by its path below referenceDir.
func renderPages(root string) (map[string]string, error) {
	pages := map[string]string{}
	for _, render := range []func(root string, pages map[string]string) error{renderPrograms, renderFields, renderReasons} {
		if err := render(root, pages); err != nil {
			return nil, err
		}
	}
	return pages, nil
}
