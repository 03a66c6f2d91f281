// Package hostfs implements two rules for every path that a job names below the directory of its
// task: the path stays below it, and directories that were created for it are removed again after
// an error.
package hostfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// CleanLocal returns the shortest form of a path below the task's directory, or "." for the empty
// path. Absolute paths and paths that lead out of the directory are errors. Symbolic links are not
// checked here: all access goes through os.Root, which does not follow them out.
func CleanLocal(path string) (string, error) {
	switch {
	case path == "":
		return ".", nil
	case strings.ContainsRune(path, 0):
		return "", fmt.Errorf("%.200q contains a NUL byte", path)
	case filepath.IsAbs(path):
		return "", fmt.Errorf("%.200q is an absolute path: must be relative to the task's directory", path)
	case !filepath.IsLocal(path):
		return "", fmt.Errorf("%.200q is outside the task's directory", path)
	}
	return filepath.Clean(path), nil
}

// MakeParents creates the directories above a path. The returned function removes those that were
// missing, with their content; it is never nil. After an error they are removed already.
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

// firstMissing returns the topmost directory that does not exist, or "". A dangling symbolic link
// is an error: its target would be created, and undo could not remove it.
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
