package isolation

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// hierarchies are the cgroups of this process, as directories.
type hierarchies struct {
	// v1 has the cgroup of this process for each controller of v1.
	v1 map[string]string
	// mounts has the mount point of each controller of v1.
	mounts map[string]string
	// v2 is the mount point of cgroup v2, and own the cgroup of this process there. Both are empty
	// if v2 is not mounted.
	v2, own string
}

// findHierarchies reads the mounted hierarchies and the cgroups of this process.
func findHierarchies() (hierarchies, error) {
	own, err := ownPaths()
	if err != nil {
		return hierarchies{}, err
	}
	mounts, err := readMounts(processMounts)
	if err != nil {
		return hierarchies{}, fmt.Errorf("read the mounts: %w", err)
	}
	h := hierarchies{v1: map[string]string{}, mounts: map[string]string{}}
	for _, m := range mounts {
		h.addMount(m, own)
	}
	if h.v2 == "" && len(h.v1) == 0 {
		return h, errors.New("no cgroup file system is mounted")
	}
	return h, nil
}

// addMount takes over a mount of cgroups; others are ignored.
func (h *hierarchies) addMount(m mountInfo, own map[string]string) {
	switch {
	case m.FSType == "cgroup2" && h.v2 == "":
		h.v2, h.own = m.Mountpoint, locateGroup(m, own[""])
	case m.FSType == "cgroup":
		h.addControllers(m, own)
	}
}

// addControllers takes over the controllers of a mount of cgroup v1.
func (h *hierarchies) addControllers(m mountInfo, own map[string]string) {
	for _, c := range strings.Split(m.VFSOptions, ",") {
		if slices.Contains([]string{cpu, cpuacct, memory, pids}, c) && h.v1[c] == "" {
			h.v1[c], h.mounts[c] = locateGroup(m, own[c]), m.Mountpoint
		}
	}
}

// locateGroup returns the directory of a cgroup. In a container the mount shows only a part of the
// hierarchy, which may not include the cgroup of this process. Then it is the top of the mount.
func locateGroup(m mountInfo, group string) string {
	rel, err := filepath.Rel(m.Root, group)
	if err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
		return m.Mountpoint
	}
	return filepath.Join(m.Mountpoint, rel)
}

// usesVersion2 reports whether to use v2: it has controllers, or v1 is not mounted. On a hybrid
// host all controllers are in v1.
func (h hierarchies) usesVersion2() bool {
	return h.v2 != "" && (len(h.v1) == 0 || slices.Contains(readWords(h.v2, "cgroup.controllers"), memory))
}

// parentGroup returns the cgroup that contains the Tree with v2: see the package comment.
func (h hierarchies) parentGroup(euid int) string {
	switch {
	case euid == 0:
		return h.v2
	case filepath.Base(h.own) == leaf:
		return filepath.Dir(h.own)
	}
	return h.own
}

// ownPaths returns the cgroups of this process by controller. The key of v2 is empty.
func ownPaths() (map[string]string, error) {
	b, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, fmt.Errorf("this kernel has no cgroups: %w", err)
	}
	return parseOwnPaths(string(b)), nil
}

func parseOwnPaths(text string) map[string]string {
	own := map[string]string{}
	for line := range strings.Lines(text) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) < 3 {
			continue
		}
		for _, controller := range strings.Split(parts[1], ",") {
			own[controller] = parts[2]
		}
	}
	return own
}
