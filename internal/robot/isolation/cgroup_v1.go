package isolation

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The controllers that tasks use. With version 2 cpuacct is part of cpu.
const (
	cpu     = "cpu"
	cpuacct = "cpuacct"
	memory  = "memory"
	pids    = "pids"
)

// v1 is a task's directory for each controller. Controllers that are mounted
// together share theirs.
type v1 map[string]string

func (v v1) dirs() []string {
	return slices.Compact(slices.Sorted(maps.Values(v)))
}

func (v v1) limit(l Limits) error {
	err := set(v[cpu], knob{"cpu.shares", strconv.FormatInt(shares(l), 10)},
		knob{"cpu.cfs_quota_us", strconv.FormatInt(quota(l), 10)})
	if l.Memory > 0 {
		bytes := strconv.FormatInt(l.Memory, 10)
		// memsw counts memory and swap together and may not be below the limit
		// of memory, hence second. A kernel without it has the swappiness.
		err = errors.Join(err, set(v[memory], knob{"memory.limit_in_bytes", bytes},
			knob{"memory.memsw.limit_in_bytes", bytes}, knob{"memory.swappiness", "0"}))
	}
	return errors.Join(err, set(v[pids], knob{"pids.max", maxPIDs(l)}))
}

// quota is the microseconds of processor time in each period of 100 ms.
func quota(l Limits) int64 {
	if l.CPU <= 0 {
		return -1
	}
	return max(l.CPU*100, 1000)
}

func shares(l Limits) int64 {
	if l.CPUWeight <= 0 {
		return 1024
	}
	return min(max(l.CPUWeight*1024/1000, 2), 262144)
}

func maxPIDs(l Limits) string {
	switch {
	case l.PIDs < 0:
		return "max"
	case l.PIDs == 0:
		return strconv.Itoa(DefaultPIDs)
	}
	return strconv.FormatInt(l.PIDs, 10)
}

func (v v1) usage() Usage {
	now := number(v[memory], "memory.usage_in_bytes") - field(v[memory], "memory.stat", "total_inactive_file")
	return Usage{
		CPU:        time.Duration(number(v[cpuacct], "cpuacct.usage")),
		Memory:     max(now, 0),
		MemoryPeak: number(v[memory], "memory.max_usage_in_bytes"),
		Throttled:  field(v[cpu], "cpu.stat", "nr_throttled"),
	}
}

func (v v1) oomKills() int64 { return field(v[memory], "memory.oom_control", "oom_kill") }

func (v v1) noForks() { _ = set(v[pids], knob{"pids.max", "0"}) }

func (v v1) killAll() {} // version 1 has nothing for it

// seats are the places of a thread: the tasks files of the groups where it is
// now, and of those that it is to join.
type seats struct{ home, away []*os.File }

// seats opens the files, for the calling thread cannot reach them any more
// once the control groups are read-only to it.
func (v v1) seats() (*seats, error) {
	own, err := ownCgroups()
	if err != nil {
		return nil, err
	}
	s := &seats{}
	for _, controller := range slices.Sorted(maps.Keys(v)) {
		if err := s.open(own[controller], v[controller]); err != nil {
			s.close()
			return nil, err
		}
	}
	return s, nil
}

func (s *seats) open(home, away string) error {
	h, err := os.OpenFile(filepath.Join(home, "tasks"), os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("own cgroup: %w", err)
	}
	s.home = append(s.home, h)
	a, err := os.OpenFile(filepath.Join(away, "tasks"), os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("cgroup of the task: %w", err)
	}
	s.away = append(s.away, a)
	return nil
}

func (s *seats) close() {
	for _, f := range slices.Concat(s.home, s.away) {
		_ = f.Close()
	}
}

// take moves the calling thread, and nothing else of its process.
func take(seats []*os.File) error {
	for _, f := range seats {
		if _, err := f.WriteString("0"); err != nil {
			return fmt.Errorf("join cgroup %s: %w", strings.TrimSuffix(f.Name(), "/tasks"), err)
		}
	}
	return nil
}
