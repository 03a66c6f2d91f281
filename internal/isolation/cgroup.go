package isolation

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// DefaultPIDs is how many processes and threads a task may have that says
// nothing. It has room for 60 ROS nodes of 30 threads, and 15 fork bombs fit
// below the kernel's usual bound of 32768.
const DefaultPIDs = 2048

// Limits bound what the processes of a control group use together. A limit
// whose controller the host lacks is left out; Probe has said so.
type Limits struct {
	// CPU is the most it gets, in thousandths of a core; below 10 counts as
	// 10. Zero: as much as there is.
	CPU int64 `json:"cpu,omitempty"`
	// CPUWeight is its share where cores are short, in thousandths of a core
	// too: 2000 gets twice what 1000 gets. Zero: 1000, as all other processes
	// of the host.
	CPUWeight int64 `json:"cpuWeight,omitempty"`
	// Memory is in bytes and a hard bound, with no swap beyond it. Zero: none.
	Memory int64 `json:"memory,omitempty"`
	// PIDs bounds processes and threads. Zero: DefaultPIDs; negative: none.
	PIDs int64 `json:"pids,omitempty"`
}

// Usage is what the processes of a control group have used. What the host
// does not count is zero.
type Usage struct {
	CPU time.Duration
	// Memory is in bytes, without file pages that can be dropped at once.
	Memory int64
	// MemoryPeak is the most that was ever charged, with file pages.
	MemoryPeak int64
	// Throttled is how many periods of 100 ms ended with the CPU limit used
	// up.
	Throttled int64
}

// Cgroup is the control group of one task. It is plain data: the agent can
// hand it to the shim and keep it in its journal. It stays valid when the
// agent that made it is gone. The zero value and nil are no group, as on a host
// that has none: nothing is in it and nothing fails.
type Cgroup struct {
	// V2 is its directory on a host with version 2.
	V2 string `json:"v2,omitempty"`
	// V1 has its directory for each controller on a host with version 1.
	V1 map[string]string `json:"v1,omitempty"`
}

// version is what differs between the versions of control groups.
type version interface {
	dirs() []string
	limit(l Limits) error
	usage() Usage
	oomKills() int64
	// noForks makes fork fail in the group, where the host can do that.
	noForks()
	// killAll asks the kernel to end everything in the group, where it can.
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

// Usage reads what was used so far. It fails only when the group is gone.
func (c *Cgroup) Usage() (Usage, error) {
	if err := c.exists(); err != nil {
		return Usage{}, err
	}
	return c.version().usage(), nil
}

// OOMKills is how many processes the kernel has killed because the group had
// reached its memory limit. Version 1 kills one process at a time and leaves
// the others; version 2 ends the whole group at once and counts each process.
func (c *Cgroup) OOMKills() (int64, error) {
	if err := c.exists(); err != nil {
		return 0, err
	}
	return c.version().oomKills(), nil
}

// Empty tells whether no process is left that has not ended. The caller's own
// does not count, nor does a group that is gone.
func (c *Cgroup) Empty() bool { return len(c.processes()) == 0 }

// Remove deletes the group, which is empty, with what tasks have made below
// it. A group that is gone is no error. The kernel is busy with a group for
// some time after its last process; Remove tries again for up to two seconds.
func (c *Cgroup) Remove() error {
	until := time.Now().Add(2 * time.Second)
	var errs []error
	for _, dir := range c.version().dirs() {
		errs = append(errs, removeDir(dir, until))
	}
	return errors.Join(errs...)
}

// exists is an error that is fs.ErrNotExist when the group is gone.
func (c *Cgroup) exists() error {
	for _, dir := range c.version().dirs() {
		if _, err := os.Stat(dir); err != nil {
			return err
		}
	}
	return nil
}

func removeDir(dir string, until time.Time) error {
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		for _, child := range subdirs(dir) {
			_ = removeDir(filepath.Join(dir, child), until)
		}
		err := unix.Rmdir(dir)
		switch {
		case err == nil || errors.Is(err, unix.ENOENT):
			return nil
		case !errors.Is(err, unix.EBUSY) || time.Now().After(until):
			return fmt.Errorf("remove cgroup %s: %w", dir, err)
		}
		time.Sleep(pause)
	}
}

func subdirs(dir string) []string {
	entries, _ := os.ReadDir(dir)
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names
}
