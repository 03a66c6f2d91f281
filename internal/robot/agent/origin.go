package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"k8s4r.io/k8s4r/internal/protocol/keyfile"
)

// originFile is the name of the file in the state directory that records where that is.
const originFile = "origin.json"

// errCopied refuses a copy of a state directory that still exists: its journal and the state of its
// shims name processes of the original, which this agent would kill as leftovers.
var errCopied = errors.New("the state directory is a copy of another one on this machine, whose tasks may run")

// stateOrigin identifies a directory of this machine.
type stateOrigin struct {
	Path  string `json:"path"`
	Inode uint64 `json:"inode"`
}

// originOf returns the path of a directory without symbolic links, and its inode.
func originOf(dir string) (stateOrigin, error) {
	path, err := filepath.Abs(dir)
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		return stateOrigin{}, err
	}
	var s syscall.Stat_t
	if err := syscall.Stat(path, &s); err != nil {
		return stateOrigin{}, fmt.Errorf("stat %s: %w", path, err)
	}
	return stateOrigin{Path: path, Inode: s.Ino}, nil
}

// readOrigin returns the recorded origin. It is zero if there is none, or it is damaged.
func readOrigin(dir string) (o stateOrigin) {
	b, err := os.ReadFile(filepath.Join(dir, originFile))
	if err != nil || json.Unmarshal(b, &o) != nil {
		return stateOrigin{}
	}
	return o
}

// checkCopied returns errCopied if the directory was copied from another one that still exists. A
// directory that was moved is no copy.
func checkCopied(dir string) error {
	recorded := readOrigin(dir)
	if recorded.Path == "" {
		return nil
	}
	if there, err := originOf(recorded.Path); err == nil && there.Inode == recorded.Inode && !isSameDir(dir, there.Path) {
		return fmt.Errorf("%w: delete %s and start with an empty directory, or delete the original %s when its agent and tasks have ended", errCopied, dir, there.Path)
	}
	return nil
}

func isSameDir(a, b string) bool {
	first, err := os.Stat(a)
	if err != nil {
		return false
	}
	second, err := os.Stat(b)
	return err == nil && os.SameFile(first, second)
}

// recordOrigin records where the directory is now.
func recordOrigin(dir string) error {
	now, err := originOf(dir)
	if err != nil || now == readOrigin(dir) {
		return err
	}
	b, err := json.Marshal(now)
	if err != nil {
		return err
	}
	return keyfile.WriteFile(filepath.Join(dir, originFile), b)
}
