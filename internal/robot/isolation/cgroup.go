package isolation

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// DefaultPIDs is the limit of processes and threads of a task that sets none. It is enough for 60
// ROS nodes of 30 threads, and 15 fork bombs fit below the usual kernel limit of 32768.
const DefaultPIDs = 2048

// Limits bound what the processes of a cgroup use together. A limit whose controller the host
// lacks is ignored; ProbeHost reports that.
type Limits struct {
	// CPU is the CPU limit in thousandths of a core, at least 10. If zero, there is none.
	CPU int64 `json:"cpu,omitempty"`
	// CPUWeight is the share when cores are contended, in thousandths of a core: 2000 gets twice
	// as much as 1000. If zero, it is 1000, like that of all other processes of the host.
	CPUWeight int64 `json:"cpuWeight,omitempty"`
	// Memory is the memory limit in bytes, without additional swap. If zero, there is none.
	Memory int64 `json:"memory,omitempty"`
	// PIDs limits processes and threads. If zero, it is DefaultPIDs; if negative, there is no
	// limit.
	PIDs int64 `json:"pids,omitempty"`
}

// Usage is what the processes of a cgroup have used. Values that the host does not measure are
// zero.
type Usage struct {
	CPU time.Duration
	// Memory is in bytes, without file pages that can be reclaimed at once.
	Memory int64
	// MemoryPeak is the highest memory usage so far, in bytes, with file pages.
	MemoryPeak int64
	// Throttled is the number of periods of 100 ms in which the CPU limit was reached.
	Throttled int64
}

// Cgroup is the cgroup of one task. It is plain data, so that the agent can pass it to the shim
// and store it in its journal, and it stays valid after the agent exits. The zero value and nil
// stand for no cgroup, as on a host without cgroups: they have no processes, and no method fails.
type Cgroup struct {
	// V2 is the directory on a host with cgroup v2.
	V2 string `json:"v2,omitempty"`
	// V1 has the directory of each controller on a host with cgroup v1.
	V1 map[string]string `json:"v1,omitempty"`
}

// version is the part that differs between cgroup v1 and v2.
type version interface {
	listDirs() []string
	applyLimits(l Limits) error
	readUsage() Usage
	// readTotal reads only CPU and MemoryPeak.
	readTotal() Usage
	oomKills() int64
	readPIDLimit() string
	writePIDLimit(limit string) error
	// forbidForks makes fork fail in the cgroup, if the host supports that.
	forbidForks()
	// killAll has the kernel kill everything in the cgroup, if it supports that.
	killAll()
}

func (c *Cgroup) version() version {
	switch {
	case c == nil:
		return v1(nil)
	case c.V2 != "":
		return v2(c.V2)
	}
	return v1(c.V1)
}

// Usage returns what was used so far. It returns an error only if the cgroup no longer exists.
func (c *Cgroup) Usage() (Usage, error) {
	if err := c.checkExists(); err != nil {
		return Usage{}, err
	}
	return c.version().readUsage(), nil
}

// Total returns the CPU time and the memory peak of what was used. The kernel has to sum up the other
// fields of Usage.
func (c *Cgroup) Total() Usage { return c.version().readTotal() }

// OOMKills returns the number of processes that the kernel killed because the cgroup reached its
// memory limit. With v1 the kernel kills one process at a time; with v2 it kills the whole cgroup
// at once and counts each process.
func (c *Cgroup) OOMKills() (int64, error) {
	if err := c.checkExists(); err != nil {
		return 0, err
	}
	return c.version().oomKills(), nil
}

// Empty reports whether no process is running in the cgroup, except the caller's own. It is true
// if the cgroup no longer exists.
func (c *Cgroup) Empty() bool { return len(c.listProcesses()) == 0 }

// Remove deletes the empty cgroup and the cgroups that the task created below it. It returns nil
// if the cgroup no longer exists. The kernel keeps a cgroup busy for a while after its last
// process has exited; Remove retries for up to two seconds.
func (c *Cgroup) Remove() error {
	until := time.Now().Add(2 * time.Second)
	var errs []error
	for _, dir := range c.version().listDirs() {
		errs = append(errs, removeDir(dir, until))
	}
	return errors.Join(errs...)
}

// checkExists returns fs.ErrNotExist if the cgroup no longer exists.
func (c *Cgroup) checkExists() error {
	for _, dir := range c.version().listDirs() {
		if _, err := os.Stat(dir); err != nil {
			return err
		}
	}
	return nil
}

func removeDir(dir string, until time.Time) error {
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		err := unix.Rmdir(dir)
		if errors.Is(err, unix.EBUSY) || errors.Is(err, unix.ENOTEMPTY) {
			err = removeWithSubdirs(dir, until)
		}
		switch {
		case err == nil || errors.Is(err, unix.ENOENT):
			return nil
		case !errors.Is(err, unix.EBUSY) || time.Now().After(until):
			return fmt.Errorf("remove cgroup %s: %w", dir, err)
		}
		time.Sleep(pause)
	}
}

// removeWithSubdirs removes a cgroup after those below it.
func removeWithSubdirs(dir string, until time.Time) error {
	for _, child := range listSubdirs(dir) {
		_ = removeDir(filepath.Join(dir, child), until)
	}
	return unix.Rmdir(dir)
}

func listSubdirs(dir string) []string {
	entries, _ := os.ReadDir(dir)
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names
}
