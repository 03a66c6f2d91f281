package isolation

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"k8s4r.io/k8s4r/internal/robot/proc"
)

// The controllers that tasks use. With v2, cpuacct is part of cpu.
const (
	cpu     = "cpu"
	cpuacct = "cpuacct"
	memory  = "memory"
	pids    = "pids"
)

// v1 is a task's directory for each controller. Controllers that are mounted together share one.
type v1 map[string]string

func (v v1) listDirs() []string {
	return slices.Compact(slices.Sorted(maps.Values(v)))
}

func (v v1) applyLimits(l Limits) error {
	var err error
	if l.CPU > 0 || l.CPUWeight > 0 { // otherwise the values of a new cgroup are right
		err = writeControlValues(v[cpu], controlValue{"cpu.shares", strconv.FormatInt(cpuShares(l), 10)},
			controlValue{"cpu.cfs_quota_us", strconv.FormatInt(cpuQuota(l), 10)})
	}
	if l.Memory > 0 {
		bytes := strconv.FormatInt(l.Memory, 10)
		// memsw counts memory and swap together and must not be below the memory limit, so it is
		// set second. Kernels without it have swappiness.
		err = errors.Join(err, writeControlValues(v[memory], controlValue{"memory.limit_in_bytes", bytes},
			controlValue{"memory.memsw.limit_in_bytes", bytes}, controlValue{"memory.swappiness", "0"}))
	}
	return errors.Join(err, writeControlValues(v[pids], controlValue{"pids.max", maxPIDs(l)}))
}

// cpuQuota returns the CPU time in each period of 100 ms, in microseconds.
func cpuQuota(l Limits) int64 {
	if l.CPU <= 0 {
		return -1
	}
	return max(l.CPU*100, 1000)
}

func cpuShares(l Limits) int64 {
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

func (v v1) readUsage() Usage {
	u := v.readTotal()
	now := readNumber(v[memory], "memory.usage_in_bytes") - readField(v[memory], "memory.stat", "total_inactive_file")
	u.Memory, u.Throttled = max(now, 0), readField(v[cpu], "cpu.stat", "nr_throttled")
	return u
}

func (v v1) readTotal() Usage {
	return Usage{
		CPU:        time.Duration(readNumber(v[cpuacct], "cpuacct.usage")),
		MemoryPeak: readNumber(v[memory], "memory.max_usage_in_bytes"),
	}
}

func (v v1) oomKills() int64 { return readField(v[memory], "memory.oom_control", "oom_kill") }

func (v v1) readPIDLimit() string { return strings.TrimSpace(readControlFile(v[pids], "pids.max")) }

func (v v1) writePIDLimit(limit string) error {
	return writeControlValues(v[pids], controlValue{"pids.max", limit})
}

func (v v1) forbidForks() { _ = v.writePIDLimit("0") }

func (v v1) killAll() {} // not supported by v1

// taskFiles are the files named tasks of the cgroups that the agent is in, and of those of a task.
type taskFiles struct{ agent, task []tasksFile }

// tasksFile is the open file of a cgroup.
type tasksFile struct {
	group string
	fd    int
}

// openTaskFiles opens the files in advance, since the calling thread cannot reach them once its
// view of the cgroups is read-only.
func (v v1) openTaskFiles() (*taskFiles, error) {
	s := &taskFiles{}
	for _, dir := range v.listDirs() {
		if err := s.openFile(agentGroup(dir), dir); err != nil {
			s.closeAll()
			return nil, err
		}
	}
	return s, nil
}

// agentGroup returns the cgroup of the agent, below which openV1 has put that of a task. Looking it up
// in the mounts would take longer than all else that a start does with cgroups.
func agentGroup(taskGroup string) string {
	return filepath.Dir(filepath.Dir(filepath.Dir(taskGroup)))
}

func (s *taskFiles) openFile(agentGroup, taskGroup string) error {
	h, err := proc.Open(filepath.Join(agentGroup, "tasks"), unix.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("open the agent's cgroup: %w", err)
	}
	s.agent = append(s.agent, tasksFile{agentGroup, h})
	a, err := proc.Open(filepath.Join(taskGroup, "tasks"), unix.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("open the cgroup of the task: %w", err)
	}
	s.task = append(s.task, tasksFile{taskGroup, a})
	return nil
}

func (s *taskFiles) closeAll() {
	for _, f := range slices.Concat(s.agent, s.task) {
		_ = unix.Close(f.fd)
	}
}

// joinGroups moves only the calling thread, not the rest of its process.
func joinGroups(files []tasksFile) error {
	for _, f := range files {
		if _, err := unix.Write(f.fd, []byte("0")); err != nil {
			return fmt.Errorf("join cgroup %s: %w", f.group, err)
		}
	}
	return nil
}
