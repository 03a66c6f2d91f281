package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"slices"
	"strings"

	"k8s4r.io/k8s4r/hack/internal/checkout"
)

// tree is the checkout: all its paths, and what its text files contain.
type tree struct {
	files []file          // text files, ordered by path
	paths map[string]bool // all files and folders, binary files too
	code  []goFile        // Go files that count as code
	only  []string        // path prefixes to report on; empty: all
	// unparsed holds one line for each Go file with a syntax error. Other people may be
	// editing the checkout, so it is not an error of the whole run.
	unparsed []string
}

type file struct {
	path, text string
}

type goFile struct {
	path   string
	fset   *token.FileSet
	syntax *ast.File
}

// readTree reads the checkout in root.
func readTree(root string) (*tree, error) {
	contents, err := checkout.ReadFiles(root)
	if err != nil {
		return nil, err
	}
	return newTree(contents), nil
}

// newTree makes a tree from the contents of its files.
func newTree(contents map[string]string) *tree {
	t := &tree{paths: map[string]bool{".": true}}
	for p, text := range contents {
		for dir := p; dir != "."; dir = path.Dir(dir) {
			t.paths[dir] = true
		}
		if checkout.IsText(text) {
			t.files = append(t.files, file{p, text})
		}
	}
	slices.SortFunc(t.files, func(a, b file) int { return strings.Compare(a.path, b.path) })
	for _, f := range t.files {
		if isCode(f) {
			t.parseCode(f)
		}
	}
	return t
}

func (t *tree) parseCode(f file) {
	fset := token.NewFileSet()
	syntax, err := parser.ParseFile(fset, f.path, f.text, parser.SkipObjectResolution)
	if err != nil {
		t.unparsed = append(t.unparsed, err.Error())
		return
	}
	t.code = append(t.code, goFile{f.path, fset, syntax})
}

// isCode reports whether f is Go code written by hand, and not a test.
func isCode(f file) bool {
	return strings.HasSuffix(f.path, ".go") && !strings.HasSuffix(f.path, "_test.go") &&
		!slices.Contains(strings.Split(f.path, "/"), "testdata") &&
		!checkout.IsGeneratedGo(f.path, f.text)
}

// isSelected reports whether p is below one of the paths to report on.
func (t *tree) isSelected(p string) bool { return checkout.IsBelow(p, t.only) }

// selectedCode returns the Go files to report on.
func (t *tree) selectedCode() []goFile {
	return slices.DeleteFunc(slices.Clone(t.code), func(f goFile) bool { return !t.isSelected(f.path) })
}

// offender is one place that a figure counts.
type offender struct {
	path string
	line int
	text string
}

func (o offender) String() string {
	if o.line == 0 {
		return o.path + ": " + o.text
	}
	return fmt.Sprintf("%s:%d: %s", o.path, o.line, o.text)
}
