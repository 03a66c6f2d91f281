package hostnode

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/types"
)

// podPaths is the directory of a pod. It holds everything that the node remembers of the pod.
type podPaths string

func (p podPaths) volumeDir(name string) string { return filepath.Join(string(p), "volumes", name) }
func (p podPaths) hostsFile() string            { return filepath.Join(string(p), "hosts") }
func (p podPaths) addressFile() string          { return filepath.Join(string(p), "ip") }

// attemptPath returns the directory of one run of a container.
func (p podPaths) attemptPath(container string, n int) attemptDir {
	return attemptDir(filepath.Join(string(p), "containers", container, strconv.Itoa(n)))
}

type attemptDir string

func (d attemptDir) shimDir() string         { return filepath.Join(string(d), "shim") }
func (d attemptDir) logsDir() string         { return filepath.Join(string(d), "logs") }
func (d attemptDir) workDir() string         { return filepath.Join(string(d), "work") }
func (d attemptDir) terminationFile() string { return filepath.Join(string(d), "termination-log") }
func (d attemptDir) delayFile() string       { return filepath.Join(string(d), "delay") }

// cgroupName returns the name of the run's cgroup, for a pod with this UID.
func (d attemptDir) cgroupName(uid types.UID) string {
	return string(uid) + "-" + filepath.Base(filepath.Dir(string(d))) + "-" + filepath.Base(string(d))
}

// listAttempts returns the runs of a container that have a directory, in ascending order.
func (p podPaths) listAttempts(container string) []int {
	entries, _ := os.ReadDir(filepath.Join(string(p), "containers", container))
	var all []int
	for _, e := range entries {
		if n, err := strconv.Atoi(e.Name()); err == nil {
			all = append(all, n)
		}
	}
	slices.SortFunc(all, cmp.Compare)
	return all
}

// listShims returns the directories of all runs of the pod that still exist.
func (p podPaths) listShims() []attemptDir {
	found, _ := filepath.Glob(filepath.Join(string(p), "containers", "*", "*"))
	var all []attemptDir
	for _, dir := range found {
		all = append(all, attemptDir(dir))
	}
	return all
}
