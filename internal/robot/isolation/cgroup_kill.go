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

// Kill ends every process of the group and of groups below it, and waits until
// they have ended, for up to wait. First it makes fork fail, so a fork bomb
// cannot outrun it; nothing can be started in the group after it. The caller's
// own process is spared, and a group that is gone is no error.
func (c *Cgroup) Kill(wait time.Duration) error {
	c.version().noForks()
	c.version().killAll()
	for until := time.Now().Add(wait); ; {
		left := c.processes()
		switch {
		case len(left) == 0:
			return nil
		case time.Now().After(until):
			return fmt.Errorf("processes %v do not end", left)
		}
		// A bomb has more processes than we have descriptors.
		for some := range slices.Chunk(left, 128) {
			c.killSome(some)
		}
	}
}

// killSome kills processes of the group and gives them a moment to end.
func (c *Cgroup) killSome(pids []int) {
	held := make([]unix.PollFd, 0, len(pids))
	of := make([]int, 0, len(pids))
	for _, pid := range pids {
		if fd, err := unix.PidfdOpen(pid, 0); err == nil {
			held = append(held, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
			of = append(of, pid)
		}
	}
	// Who is still in the group now that we hold it is the one we mean. A
	// number read before could meanwhile be that of anybody on the host.
	members := c.processes()
	for i, h := range held {
		if slices.Contains(members, of[i]) {
			_ = unix.PidfdSendSignal(int(h.Fd), unix.SIGKILL, nil, 0)
		}
	}
	awaitEnd(slices.Clone(held), 100*time.Millisecond)
	for _, h := range held {
		_ = unix.Close(int(h.Fd))
	}
}

// awaitEnd waits until all processes have ended, but not for long: one may
// hang in the kernel, and the others wait.
func awaitEnd(held []unix.PollFd, most time.Duration) {
	for until := time.Now().Add(most); len(held) > 0; {
		left := time.Until(until)
		if left <= 0 {
			return
		}
		_, _ = unix.Poll(held, int(left.Milliseconds())+1)
		held = slices.DeleteFunc(held, func(h unix.PollFd) bool { return h.Revents != 0 })
	}
}

// processes lists who is in the group or below and has not ended.
func (c *Cgroup) processes() []int {
	var found []int
	for _, dir := range c.version().dirs() {
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

// readPIDs leaves out our own process, of which a thread may be in a group for
// the moment of a fork, and what a pid namespace does not show.
func readPIDs(file string) []int {
	var found []int
	for _, word := range words(filepath.Dir(file), filepath.Base(file)) {
		if pid, err := strconv.Atoi(word); err == nil && pid > 0 && pid != os.Getpid() {
			found = append(found, pid)
		}
	}
	return found
}
