package isolation

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Kill kills every process of the cgroup and of the cgroups below it, except the caller's own, and
// waits up to wait for them to exit. It first makes fork fail, so that a fork bomb cannot outrun
// it. Nothing can be started in the cgroup afterwards, until SetPIDLimit. If the cgroup no longer exists, Kill
// returns nil.
func (c *Cgroup) Kill(wait time.Duration) error {
	c.version().forbidForks()
	c.version().killAll()
	for until := time.Now().Add(wait); ; {
		left := c.listProcesses()
		switch {
		case len(left) == 0:
			return nil
		case time.Now().After(until):
			return fmt.Errorf("processes %v are still running", left)
		}
		// A fork bomb can have more processes than this process has descriptors.
		for some := range slices.Chunk(left, 128) {
			c.killSome(some)
		}
	}
}

// PIDLimit returns the limit of processes and threads, for SetPIDLimit after Kill. It is empty if the
// cgroup has none.
func (c *Cgroup) PIDLimit() string { return c.version().readPIDLimit() }

// SetPIDLimit sets the limit of processes and threads, so that processes can be started again.
func (c *Cgroup) SetPIDLimit(limit string) error { return c.version().writePIDLimit(limit) }

// killSome kills some processes of the cgroup and waits briefly for them to exit.
func (c *Cgroup) killSome(pids []int) {
	pidfds := make([]unix.PollFd, 0, len(pids))
	of := make([]int, 0, len(pids))
	for _, pid := range pids {
		if fd, err := unix.PidfdOpen(pid, 0); err == nil {
			pidfds = append(pidfds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
			of = append(of, pid)
		}
	}
	// Check the members again now that the processes are held by pidfd. A PID that was read before
	// may have been reused by an unrelated process.
	members := c.listProcesses()
	for i, h := range pidfds {
		if slices.Contains(members, of[i]) {
			_ = unix.PidfdSendSignal(int(h.Fd), unix.SIGKILL, nil, 0)
		}
	}
	awaitExits(slices.Clone(pidfds), 100*time.Millisecond)
	for _, h := range pidfds {
		_ = unix.Close(int(h.Fd))
	}
}

// awaitExits waits up to wait until all processes have exited. One process may hang in the kernel
// while others are yet to be killed.
func awaitExits(pidfds []unix.PollFd, wait time.Duration) {
	for until := time.Now().Add(wait); len(pidfds) > 0; {
		left := time.Until(until)
		if left <= 0 {
			return
		}
		_, _ = unix.Poll(pidfds, int(left.Milliseconds())+1)
		pidfds = slices.DeleteFunc(pidfds, func(h unix.PollFd) bool { return h.Revents != 0 })
	}
}

// listProcesses returns the processes in the cgroup or below it that have not exited.
func (c *Cgroup) listProcesses() []int {
	var found []int
	for _, dir := range c.version().listDirs() {
		_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Name() == "cgroup.procs" {
				found = append(found, readPIDs(path)...)
			}
			return nil
		})
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// readPIDs returns the PIDs in a file. It leaves out this process, which may have a thread in the
// cgroup during a fork, and processes that the PID namespace hides.
func readPIDs(file string) []int {
	var found []int
	for _, name := range readWords(filepath.Dir(file), filepath.Base(file)) {
		if pid, err := strconv.Atoi(name); err == nil && pid > 0 && pid != os.Getpid() {
			found = append(found, pid)
		}
	}
	return found
}
