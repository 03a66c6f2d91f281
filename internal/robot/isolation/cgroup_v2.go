package isolation

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// v2 is the directory of a task.
type v2 string

func (v v2) listDirs() []string { return []string{string(v)} }

func (v v2) applyLimits(l Limits) error {
	quotaText := "max 100000"
	if q := cpuQuota(l); q > 0 {
		quotaText = fmt.Sprintf("%d 100000", q)
	}
	values := []controlValue{{"cpu.weight", strconv.FormatInt(cpuWeight(l), 10)}, {"cpu.max", quotaText}, {"pids.max", maxPIDs(l)}}
	if l.Memory > 0 {
		// The OOM killer ends all processes of a task together. Otherwise it would kill the
		// largest one, and the rest of the task would hang.
		values = append(values, controlValue{"memory.max", strconv.FormatInt(l.Memory, 10)},
			controlValue{"memory.swap.max", "0"}, controlValue{"memory.oom.group", "1"})
	}
	return writeControlValues(string(v), values...)
}

func cpuWeight(l Limits) int64 {
	if l.CPUWeight <= 0 {
		return 100
	}
	return min(max(l.CPUWeight/10, 1), 10000)
}

func (v v2) readUsage() Usage {
	u, dir := v.readTotal(), string(v)
	now := readNumber(dir, "memory.current") - readField(dir, "memory.stat", "inactive_file")
	u.Memory, u.Throttled = max(now, 0), readField(dir, "cpu.stat", "nr_throttled")
	return u
}

func (v v2) readTotal() Usage {
	return Usage{
		CPU:        time.Duration(readField(string(v), "cpu.stat", "usage_usec")) * time.Microsecond,
		MemoryPeak: readNumber(string(v), "memory.peak"),
	}
}

func (v v2) oomKills() int64 { return readField(string(v), "memory.events", "oom_kill") }

func (v v2) readPIDLimit() string { return strings.TrimSpace(readControlFile(string(v), "pids.max")) }

func (v v2) writePIDLimit(limit string) error {
	return writeControlValues(string(v), controlValue{"pids.max", limit})
}

func (v v2) forbidForks() { _ = v.writePIDLimit("0") }

func (v v2) killAll() { _ = writeControlValues(string(v), controlValue{"cgroup.kill", "1"}) }

// leaf is the cgroup for the processes of a cgroup that is to have children.
const leaf = "agent"

// enableControllers passes the controllers of a cgroup on to its children, as far as the kernel
// permits. The error names the others.
func enableControllers(dir string) error {
	enabled := readWords(dir, "cgroup.subtree_control")
	var errs []error
	for _, c := range readWords(dir, "cgroup.controllers") {
		if !slices.Contains([]string{cpu, memory, pids}, c) || slices.Contains(enabled, c) {
			continue
		}
		if err := delegateController(dir, c); err != nil {
			errs = append(errs, fmt.Errorf("delegate the cgroup controller %s: %w", c, err))
		}
	}
	return errors.Join(errs...)
}

func delegateController(dir, controller string) error {
	err := writeControlFile(dir, "cgroup.subtree_control", "+"+controller)
	if !errors.Is(err, unix.EBUSY) {
		return err
	}
	if err := moveToLeaf(dir); err != nil {
		return err
	}
	return writeControlFile(dir, "cgroup.subtree_control", "+"+controller)
}

// moveToLeaf moves the processes of a cgroup into its leaf.
func moveToLeaf(dir string) error {
	to := filepath.Join(dir, leaf)
	if err := os.Mkdir(to, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	for _, pid := range readWords(dir, "cgroup.procs") {
		// A process that has exited meanwhile needs no move.
		if err := writeControlFile(to, "cgroup.procs", pid); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("move process %s to %s: %w", pid, to, err)
		}
	}
	return nil
}
