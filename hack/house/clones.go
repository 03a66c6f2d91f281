package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const (
	clonesRoot   = "internal/controllers/"
	cloneMinSize = "40" // tokens, as dupl counts them
)

// helperMarks are the words by which a fragment is known as part of a helper: of requeue, of
// adoption, of default values.
var helperMarks = regexp.MustCompile(`(?i)wake|requeue|retryafter|` +
	`adopt|IsControlledBy|GetControllerOf|NewControllerRef|SetControllerReference|OwnerReferences|` +
	`default|ptr\.Deref`)

var cloneLine = regexp.MustCompile(`^(.+):(\d+)-(\d+): duplicate of (.+)$`)

// clone is a fragment that exists elsewhere, too.
type clone struct {
	path        string
	first, last int
	other       string
}

// findClones runs dupl over the controllers of the checkout in root.
func findClones(root string, t *tree) ([]clone, error) {
	var names []string
	for _, f := range t.code {
		if strings.HasPrefix(f.path, clonesRoot) {
			names = append(names, f.path)
		}
	}
	program, err := locateDupl(root)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(program, "-files", "-plumbing", "-threshold", cloneMinSize)
	cmd.Dir = root
	cmd.Stdin = strings.NewReader(strings.Join(names, "\n") + "\n")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("dupl: %w: %s", err, stderr.String())
	}
	return parseClones(string(out)), nil
}

// locateDupl returns the path of dupl: in bin/ of the checkout, beside this program, or in
// PATH.
func locateDupl(root string) (string, error) {
	candidates := []string{filepath.Join(root, "bin", "dupl")}
	if self, err := os.Executable(); err == nil {
		candidates = append(candidates, filepath.Join(filepath.Dir(self), "dupl"))
	}
	for _, c := range candidates {
		if _, err := os.Stat(c); err == nil {
			return c, nil
		}
	}
	found, err := exec.LookPath("dupl")
	if err != nil {
		return "", fmt.Errorf("duplicate_helpers needs dupl, run make bin/dupl: %w", err)
	}
	return found, nil
}

// parseClones reads what dupl -plumbing prints.
func parseClones(out string) []clone {
	var clones []clone
	for line := range strings.Lines(out) {
		if m := cloneLine.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
			first, _ := strconv.Atoi(m[2]) // digits by the expression
			last, _ := strconv.Atoi(m[3])
			clones = append(clones, clone{m[1], first, last, m[4]})
		}
	}
	return clones
}

// countDuplicateHelpers returns a check that counts those of clones that belong to a helper.
func countDuplicateHelpers(clones []clone) func(*tree) (any, []offender) {
	return func(t *tree) (any, []offender) {
		var found []offender
		for _, c := range clones {
			if t.isSelected(c.path) && isHelperClone(t, c) {
				text := fmt.Sprintf("%d lines like %s", c.last-c.first+1, c.other)
				found = append(found, offender{c.path, c.first, text})
			}
		}
		return len(found), found
	}
}

// isHelperClone reports whether the fragment, or the name of its function, has a helper mark.
func isHelperClone(t *tree, c clone) bool {
	i := slices.IndexFunc(t.files, func(f file) bool { return f.path == c.path })
	if i < 0 {
		return false
	}
	lines := strings.Split(t.files[i].text, "\n")
	fragment := strings.Join(lines[min(c.first-1, len(lines)):min(c.last, len(lines))], "\n")
	return helperMarks.MatchString(fragment) || helperMarks.MatchString(getFunctionAt(t, c.path, c.first))
}

// getFunctionAt returns the name of the function that contains the line.
func getFunctionAt(t *tree, name string, line int) string {
	for _, f := range t.code {
		if f.path != name {
			continue
		}
		for _, d := range f.syntax.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if ok && f.fset.Position(fn.Pos()).Line <= line && line <= f.fset.Position(fn.End()).Line {
				return fn.Name.Name
			}
		}
	}
	return ""
}
