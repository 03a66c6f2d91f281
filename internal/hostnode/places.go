package hostnode

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/types"
)

// places is the directory of a pod. What is in it is all that the node knows of
// the pod's past.
type places string

func (p places) volume(name string) string { return filepath.Join(string(p), "volumes", name) }
func (p places) hosts() string             { return filepath.Join(string(p), "hosts") }
func (p places) ip() string                { return filepath.Join(string(p), "ip") }

// attempt is the directory of one run of a container.
func (p places) attempt(container string, n int) attemptDir {
	return attemptDir(filepath.Join(string(p), "containers", container, strconv.Itoa(n)))
}

type attemptDir string

func (d attemptDir) shim() string        { return filepath.Join(string(d), "shim") }
func (d attemptDir) logs() string        { return filepath.Join(string(d), "logs") }
func (d attemptDir) work() string        { return filepath.Join(string(d), "work") }
func (d attemptDir) termination() string { return filepath.Join(string(d), "termination-log") }
func (d attemptDir) delay() string       { return filepath.Join(string(d), "delay") }

// cgroup names the control group of the run, of a pod with this UID.
func (d attemptDir) cgroup(uid types.UID) string {
	return string(uid) + "-" + filepath.Base(filepath.Dir(string(d))) + "-" + filepath.Base(string(d))
}

// attempts lists the runs of a container that have a directory, in their order.
func (p places) attempts(container string) []int {
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

// shims lists the directories of all shims that the pod ever had and that are still
// there.
func (p places) shims() []attemptDir {
	found, _ := filepath.Glob(filepath.Join(string(p), "containers", "*", "*"))
	var all []attemptDir
	for _, dir := range found {
		all = append(all, attemptDir(dir))
	}
	return all
}
