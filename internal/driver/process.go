package driver

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Process is a started process, the leader of a process group whose number is
// its own.
type Process struct {
	PID int
	// StartTicks is when it started, in clock ticks since boot. Together with
	// the boot it tells this process from a later one with the same PID.
	StartTicks uint64
	StartedAt  time.Time

	pidfd int
}

// fork starts a program in a process group of its own.
func fork(path string, argv []string, dir string, env []string, files []*os.File) (*Process, error) {
	fds := make([]uintptr, len(files))
	for i, f := range files {
		fds[i] = f.Fd()
	}
	pidfd := -1
	pid, err := syscall.ForkExec(path, argv, &syscall.ProcAttr{
		Dir: dir, Env: env, Files: fds,
		Sys: &syscall.SysProcAttr{Setpgid: true, PidFD: &pidfd},
	})
	if err != nil {
		return nil, err
	}
	p := &Process{PID: pid, StartedAt: time.Now(), pidfd: pidfd}
	if pidfd < 0 {
		p.abort()
		return nil, errors.New("the kernel has no pidfd (Linux 5.4 or newer is needed)")
	}
	// An error means that it has ended already, and then nobody needs it.
	p.StartTicks, _ = startTicks(pid)
	return p, nil
}

// signal reaches every process of the group. The leader must not have been
// reaped yet: until then nobody else can have its number.
func (p *Process) signal(s syscall.Signal) { _ = syscall.Kill(-p.PID, s) }

// over tells whether the leader has ended and waits to be reaped.
func (p *Process) over() bool {
	fds := []unix.PollFd{{Fd: int32(p.pidfd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n == 1
}

// abort ends a process that nobody watches.
func (p *Process) abort() {
	p.signal(syscall.SIGKILL)
	_, _ = p.reap()
}

// reap takes the exit status of the leader, which has ended, and ends the rest
// of its group.
func (p *Process) reap() (syscall.WaitStatus, error) {
	// Before the wait, since after it the number may belong to another group.
	p.signal(syscall.SIGKILL)
	var status syscall.WaitStatus
	for {
		_, err := syscall.Wait4(p.PID, &status, 0, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if p.pidfd >= 0 {
			_ = unix.Close(p.pidfd)
			p.pidfd = -1
		}
		return status, err
	}
}

// startTicks reads the start time of a process from /proc (proc(5), stat,
// field 22).
func startTicks(pid int) (uint64, error) {
	fields, err := stat(pid)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(fields[19], 10, 64)
}

// Alive tells whether a process exists and has not ended: a zombie, which only
// waits for its parent, has.
func Alive(pid int) bool {
	fields, err := stat(pid)
	return err == nil && fields[0] != "Z" && fields[0] != "X"
}

// stat reads the fields of /proc/pid/stat from the third on, the state.
func stat(pid int) ([]string, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, err
	}
	// The second field is the program's name in brackets, with anything in it.
	end := bytes.LastIndexByte(b, ')')
	fields := strings.Fields(string(b[end+1:]))
	if len(fields) < 20 {
		return nil, fmt.Errorf("/proc/%d/stat has %d fields after the name", pid, len(fields))
	}
	return fields, nil
}

// BootID names this boot of the machine. It is empty where /proc does not say.
var BootID = sync.OnceValue(func() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
})
