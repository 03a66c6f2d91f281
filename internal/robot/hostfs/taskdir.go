// Package taskdir holds the two rules for every path that a job names below
// the directory of its task: it stays below it, and what was made for it is
// taken away again when nothing came of it.
package taskdir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Local returns the shortest form of a path below the task's directory, "."
// for an empty one. Absolute paths and those with a .. that leads out of the
// directory are errors. Symbolic links are not its matter: os.Root, which
// every access goes through, does not follow them out.
func Local(path string) (string, error) {
	switch {
	case path == "":
		return ".", nil
	case strings.ContainsRune(path, 0):
		return "", fmt.Errorf("%.200q contains a NUL byte", path)
	case filepath.IsAbs(path):
		return "", fmt.Errorf("%.200q is an absolute path, it must be below the task's directory", path)
	case !filepath.IsLocal(path):
		return "", fmt.Errorf("%.200q leads out of the task's directory", path)
	}
	return filepath.Clean(path), nil
}

// MakeParents creates the directories above a path. The function that it
// returns removes those that were not there before, with what is in them; it
// is never nil. After an error they are gone already.
func MakeParents(root *os.Root, path string) (undo func(), err error) {
	undo = func() {}
	made, err := firstMissing(root, filepath.Dir(path))
	if err != nil {
		return undo, err
	}
	if made != "" {
		undo = func() { _ = root.RemoveAll(made) }
	}
	if err := root.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		undo()
		return func() {}, err
	}
	return undo, nil
}

// firstMissing is the uppermost directory that would have to be made, or "".
// A symbolic link to nothing is an error: what it leads to would be made, and
// could not be told from what was there.
func firstMissing(root *os.Root, dir string) (first string, err error) {
	for ; dir != "."; dir = filepath.Dir(dir) {
		if _, err := root.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
			first = dir
			continue
		}
		_, err = root.Stat(dir)
		return first, err
	}
	return first, nil
}
