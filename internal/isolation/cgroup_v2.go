package isolation

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// v2 is the directory of a task.
type v2 string

func (v v2) dirs() []string { return []string{string(v)} }

func (v v2) limit(l Limits) error {
	quotaText := "max 100000"
	if q := quota(l); q > 0 {
		quotaText = fmt.Sprintf("%d 100000", q)
	}
	knobs := []knob{{"cpu.weight", strconv.FormatInt(weight(l), 10)}, {"cpu.max", quotaText}, {"pids.max", maxPIDs(l)}}
	if l.Memory > 0 {
		// All processes of a task go together. Without it the kernel takes the
		// fattest, and what is left of the task hangs.
		knobs = append(knobs, knob{"memory.max", strconv.FormatInt(l.Memory, 10)},
			knob{"memory.swap.max", "0"}, knob{"memory.oom.group", "1"})
	}
	return set(string(v), knobs...)
}

func weight(l Limits) int64 {
	if l.CPUWeight <= 0 {
		return 100
	}
	return min(max(l.CPUWeight/10, 1), 10000)
}

func (v v2) usage() Usage {
	dir := string(v)
	now := number(dir, "memory.current") - field(dir, "memory.stat", "inactive_file")
	return Usage{
		CPU:        time.Duration(field(dir, "cpu.stat", "usage_usec")) * time.Microsecond,
		Memory:     max(now, 0),
		MemoryPeak: number(dir, "memory.peak"),
		Throttled:  field(dir, "cpu.stat", "nr_throttled"),
	}
}

func (v v2) oomKills() int64 { return field(string(v), "memory.events", "oom_kill") }

func (v v2) noForks() { _ = set(string(v), knob{"pids.max", "0"}) }

func (v v2) killAll() { _ = set(string(v), knob{"cgroup.kill", "1"}) }

// leaf is the group for what lives in the group that is to have children.
const leaf = "agent"

// enable hands the controllers of a group on to its children, as many as the
// kernel lets it; the error tells of the others.
func enable(dir string) error {
	enabled := words(dir, "cgroup.subtree_control")
	var errs []error
	for _, c := range words(dir, "cgroup.controllers") {
		if !slices.Contains([]string{cpu, memory, pids}, c) || slices.Contains(enabled, c) {
			continue
		}
		if err := handOn(dir, c); err != nil {
			errs = append(errs, fmt.Errorf("hand on the cgroup controller %s: %w", c, err))
		}
	}
	return errors.Join(errs...)
}

func handOn(dir, controller string) error {
	err := write(dir, "cgroup.subtree_control", "+"+controller)
	if !errors.Is(err, unix.EBUSY) {
		return err
	}
	if err := vacate(dir); err != nil {
		return err
	}
	return write(dir, "cgroup.subtree_control", "+"+controller)
}

// vacate moves the processes of a group into its leaf.
func vacate(dir string) error {
	to := filepath.Join(dir, leaf)
	if err := os.Mkdir(to, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	for _, pid := range words(dir, "cgroup.procs") {
		// One that has ended meanwhile needs no move.
		if err := write(to, "cgroup.procs", pid); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("move process %s to %s: %w", pid, to, err)
		}
	}
	return nil
}
