package shim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// awaitEvent blocks until a descriptor is readable or a deadline passes.
func (s *shim) awaitEvent() {
	s.deadlineTimer.setTime(s.nextDeadline())
	fds := []unix.PollFd{}
	rerendered := -1
	if s.rerender != nil {
		rerendered = s.rerender.child.Done()
	}
	for _, fd := range []int{s.task.Done(), rerendered, s.control, s.signals.readFD, s.deadlineTimer.fd, s.output.stdout.readFD, s.output.stderr.readFD} {
		fds = append(fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}) // poll ignores negative descriptors
	}
	_, _ = unix.Poll(fds, s.pollTimeout())
}

// pollTimeout returns the milliseconds until something other than a deadline has to be done, or -1.
func (s *shim) pollTimeout() int {
	timeout := s.output.pollTimeout(time.Now())
	if s.orphansAt == 0 {
		return timeout
	}
	untilOrphans := int(max(s.orphansAt-SinceBoot(), 0)/time.Millisecond) + 1
	if timeout < 0 {
		return untilOrphans
	}
	return min(timeout, untilOrphans)
}

// IsReadable reports whether a read would not block. For a pidfd: whether the process has exited.
func IsReadable(fd int) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n == 1
}

// ControlRequest is what the agent sends to a running shim.
type ControlRequest struct {
	// Stop stops the task, for this reason. If empty, the task keeps running.
	Stop string `json:"stop,omitempty"`
	// Grace is the time from SIGTERM to SIGKILL.
	Grace time.Duration `json:"grace,omitempty"`
	// Render renders the templates again. It is sent by SendAttributes.
	Render bool `json:"render,omitempty"`
	// Pause starts no more indexes of a range. The one that runs may end.
	Pause bool `json:"pause,omitempty"`
}

// Send sends the request to the shim in dir. It returns unix.ENXIO if no shim is running.
func (r ControlRequest) Send(dir string) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	// Opened write-only, so that opening fails if no shim reads the pipe.
	fd, err := unix.Open(controlPath(dir), unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open the control pipe: %w", err)
	}
	_, err = unix.Write(fd, append(b, '\n'))
	return errors.Join(err, unix.Close(fd))
}

func controlPath(dir string) string { return filepath.Join(dir, controlPipeName) }

// handleRequests handles all requests and signals that have arrived.
func (s *shim) handleRequests() {
	s.readRequests()
	signals := readAll(s.signals.readFD)
	if bytes.IndexByte(signals, byte(syscall.SIGTERM)) >= 0 { // the machine shuts down
		s.stopTask(wire.ReasonAgentStopped, s.spec.KillTimeout)
	}
	if bytes.IndexByte(signals, byte(syscall.SIGCHLD)) >= 0 {
		s.reapOrphans()
	}
}

// readRequests handles the requests of the agent that have arrived.
func (s *shim) readRequests() {
	for line := range bytes.Lines(readAll(s.control)) {
		var r ControlRequest
		switch err := json.Unmarshal(line, &r); {
		case err != nil: // not a partial request: writes to a pipe of this size are atomic
		case r.Stop != "":
			s.stopTask(r.Stop, r.Grace)
		case r.Pause:
			s.indexes.isPausing = true
		case r.Render:
			s.startRerender()
		}
	}
}

// orphanDelay is how long a process runs before its orphans are reaped as they exit. A task that ends
// earlier does not need that: all of them are reaped at its end. Until then they count as processes of
// the task, which has a limit.
const orphanDelay = 50 * time.Millisecond

// watchOrphansLater has enforceDeadlines call watchOrphans for the process that was just started.
func (s *shim) watchOrphansLater() {
	s.orphansAt = SinceBoot() + orphanDelay
	if s.watchesOrphans {
		s.watchesOrphans = false
		s.signals.release(syscall.SIGCHLD)
	}
}

// watchOrphans has the shim reap the orphans of the task from now on.
func (s *shim) watchOrphans() {
	s.orphansAt, s.watchesOrphans = 0, true
	s.signals.catch(syscall.SIGCHLD)
	s.reapOrphans()
}

// reapOrphans reaps orphans of the task that have exited. The shim's own children are left to the
// code that started them.
func (s *shim) reapOrphans() {
	for {
		var exited unix.Siginfo
		err := unix.Waitid(unix.P_ALL, 0, &exited, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		pid := siginfoPID(&exited)
		if err != nil || pid == 0 || s.task != nil && pid == s.task.PID() || s.rerender != nil && pid == s.rerender.child.PID() {
			return
		}
		_, _ = unix.Wait4(pid, nil, 0, nil)
	}
}

// siginfoPID returns the PID in the result of waitid. If zero, no process was found.
func siginfoPID(i *unix.Siginfo) int {
	// si_pid follows three ints in siginfo_t, aligned to a pointer.
	const pointerSize = unsafe.Sizeof(uintptr(0))
	const offset = (3*4 + pointerSize - 1) / pointerSize * pointerSize
	return int(*(*int32)(unsafe.Add(unsafe.Pointer(i), offset)))
}

// readAll returns what can be read without blocking.
func readAll(fd int) []byte {
	b := make([]byte, 4096)
	var all []byte
	for {
		n, err := unix.Read(fd, b)
		if n <= 0 || err != nil {
			return all
		}
		all = append(all, b[:n]...)
	}
}

// bootTimer is a timer that also runs while the machine sleeps.
type bootTimer struct {
	fd int
	at time.Duration
}

func newBootTimer() (*bootTimer, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("timerfd_create", err)
	}
	return &bootTimer{fd: fd}, nil
}

// setTime makes the timer readable from this time since boot on. If at is zero, the timer is
// stopped.
func (a *bootTimer) setTime(at time.Duration) {
	if a.at == at {
		return
	}
	a.at = at
	_ = unix.TimerfdSettime(a.fd, unix.TFD_TIMER_ABSTIME, &unix.ItimerSpec{Value: unix.NsecToTimespec(int64(at))}, nil)
}
