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

	"k8s4r.io/k8s4r/internal/wire"
)

// wait returns when something has happened, or is due.
func (s *shim) wait() {
	s.alarm.set(s.due())
	fds := []unix.PollFd{}
	beside := -1
	if s.rerender != nil {
		beside = s.rerender.child.Done()
	}
	for _, fd := range []int{s.task.Done(), beside, s.control, s.signals, s.alarm.fd, s.output.stdout.ours, s.output.stderr.ours} {
		fds = append(fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}) // a negative one is ignored
	}
	_, _ = unix.Poll(fds, s.output.patience(time.Now()))
}

// Readable tells whether a read would not wait: of a pidfd, whether the process has
// ended.
func Readable(fd int) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n == 1
}

// Order is what an agent may ask of a shim.
type Order struct {
	// Stop ends the task, for this reason.
	Stop string `json:"stop,omitempty"`
	// Grace is the time from SIGTERM to SIGKILL.
	Grace time.Duration `json:"grace,omitempty"`
	// Render renders the templates again (TellFacts).
	Render bool `json:"render,omitempty"`
}

// Send gives an order to the shim in dir. It fails with unix.ENXIO when there is
// none any more.
func (o Order) Send(dir string) error {
	b, err := json.Marshal(o)
	if err != nil {
		return err
	}
	// For writing alone, so that an order to nobody fails.
	fd, err := unix.Open(controlPath(dir), unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open the control pipe: %w", err)
	}
	_, err = unix.Write(fd, append(b, '\n'))
	return errors.Join(err, unix.Close(fd))
}

func controlPath(dir string) string { return filepath.Join(dir, controlFile) }

// obey takes in orders and signals.
func (s *shim) obey() {
	for line := range bytes.Lines(readAll(s.control)) {
		var o Order
		switch err := json.Unmarshal(line, &o); {
		case err != nil: // half an order cannot be: a pipe takes them whole
		case o.Stop != "":
			s.stop(o.Stop, o.Grace)
		case o.Render:
			s.renderAgain()
		}
	}
	signals := readAll(s.signals)
	if bytes.IndexByte(signals, byte(syscall.SIGTERM)) >= 0 { // the machine goes down
		s.stop(wire.ReasonAgentStopped, s.spec.KillTimeout)
	}
	if bytes.IndexByte(signals, byte(syscall.SIGCHLD)) >= 0 {
		s.bury()
	}
}

// bury reaps what was orphaned below us and has ended. What we have started ourselves
// waits for who has.
func (s *shim) bury() {
	for {
		var dead unix.Siginfo
		err := unix.Waitid(unix.P_ALL, 0, &dead, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		pid := deadPID(&dead)
		if err != nil || pid == 0 || pid == s.task.PID() || s.rerender != nil && pid == s.rerender.child.PID() {
			return
		}
		_, _ = unix.Wait4(pid, nil, 0, nil)
	}
}

// deadPID is the process that waitid has found. Zero: none.
func deadPID(i *unix.Siginfo) int {
	// Behind three numbers, at the alignment of a pointer (siginfo_t, si_pid).
	const word = unsafe.Sizeof(uintptr(0))
	const place = (3*4 + word - 1) / word * word
	return int(*(*int32)(unsafe.Add(unsafe.Pointer(i), place)))
}

// readAll reads what is there now.
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

// alarm is a timer that also runs while the machine sleeps.
type alarm struct {
	fd int
	at time.Duration
}

func newAlarm() (*alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("timerfd_create", err)
	}
	return &alarm{fd: fd}, nil
}

// set makes it readable from then on, since boot. Zero: never.
func (a *alarm) set(at time.Duration) {
	if a.at == at {
		return
	}
	a.at = at
	_ = unix.TimerfdSettime(a.fd, unix.TFD_TIMER_ABSTIME, &unix.ItimerSpec{Value: unix.NsecToTimespec(int64(at))}, nil)
}
