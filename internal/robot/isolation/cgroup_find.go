package isolation

import (
	"io/fs"
	"path/filepath"
	"strings"
)

// FindCgroup returns the cgroup of a container, which the engine has named after the container's id:
// <id>, or docker-<id>.scope with systemd. It returns nil if this process sees none, as in a
// container of its own.
func FindCgroup(containerID string) *Cgroup {
	h, err := findHierarchies()
	if err != nil || len(containerID) < minContainerID {
		return nil
	}
	if h.usesVersion2() {
		if dir := findDir(h.v2, containerID); dir != "" {
			return &Cgroup{V2: dir}
		}
		return nil
	}
	found := map[string]string{}
	for controller, top := range h.mounts {
		if dir := findDir(top, containerID); dir != "" {
			found[controller] = dir
		}
	}
	if len(found) == 0 {
		return nil
	}
	return &Cgroup{V1: found}
}

// minContainerID is the least length of an id, so that no other cgroup can have it in its name.
const minContainerID = 32

// findDir returns the topmost directory below top whose name contains the id, or "".
func findDir(top, id string) (found string) {
	_ = filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.Contains(d.Name(), id) { // on an error it was removed meanwhile
			found = path
			return filepath.SkipAll
		}
		return nil
	})
	return found
}
