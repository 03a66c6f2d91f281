package isolation

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
)

// hierarchies are the control groups of this process, as directories.
type hierarchies struct {
	// v1 has our own group for each controller of version 1.
	v1 map[string]string
	// v2 is where version 2 is mounted, own our group there; empty when it is
	// not mounted.
	v2, own string
}

// findHierarchies reads what is mounted and where this process is in it.
func findHierarchies() (hierarchies, error) {
	own, err := ownPaths()
	if err != nil {
		return hierarchies{}, err
	}
	mounts, err := hostMounts(mountinfo.FSTypeFilter("cgroup", "cgroup2"))
	if err != nil {
		return hierarchies{}, fmt.Errorf("read the mounts: %w", err)
	}
	h := hierarchies{v1: map[string]string{}}
	for _, m := range mounts {
		h.add(m, own)
	}
	if h.v2 == "" && len(h.v1) == 0 {
		return h, errors.New("no cgroup file system is mounted")
	}
	return h, nil
}

// hostMounts are the mounts that this process was started with.
//
// They are not read by way of /proc/thread-self, as mountinfo.GetMounts does: who
// reaps this process would wait, and keep a processor busy, until the kernel has let
// go of what its last thread had there. That took half of what a start costs.
func hostMounts(filter mountinfo.FilterFunc) ([]*mountinfo.Info, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return mountinfo.GetMountsFromReader(f, filter)
}

func (h *hierarchies) add(m *mountinfo.Info, own map[string]string) {
	if m.FSType == "cgroup2" {
		if h.v2 == "" {
			h.v2, h.own = m.Mountpoint, locate(m, own[""])
		}
		return
	}
	for _, c := range strings.Split(m.VFSOptions, ",") {
		if slices.Contains([]string{cpu, cpuacct, memory, pids}, c) && h.v1[c] == "" {
			h.v1[c] = locate(m, own[c])
		}
	}
}

// locate finds the directory of a group. In a container the mount shows only a
// part of the hierarchy, and our own group may be outside of it; its top is
// then as near as we get.
func locate(m *mountinfo.Info, group string) string {
	rel, err := filepath.Rel(m.Root, group)
	if err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
		return m.Mountpoint
	}
	return filepath.Join(m.Mountpoint, rel)
}

// version2 tells whether to use version 2: it has controllers to give, or
// there is nothing else. On a hybrid host all controllers are in version 1.
func (h hierarchies) version2() bool {
	return h.v2 != "" && (len(h.v1) == 0 || slices.Contains(words(h.v2, "cgroup.controllers"), memory))
}

// parent is the group of version 2 for the tree: see the package comment.
func (h hierarchies) parent(euid int) string {
	switch {
	case euid == 0:
		return h.v2
	case filepath.Base(h.own) == leaf:
		return filepath.Dir(h.own)
	}
	return h.own
}

// ownPaths reads in which group this process is, by controller; version 2 is
// the empty controller.
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

// ownCgroups is our own group for each controller of version 1.
func ownCgroups() (map[string]string, error) {
	h, err := findHierarchies()
	return h.v1, err
}
