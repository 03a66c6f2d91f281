// Package shim is the small process that parents one task (docs/adr/0011).
//
// It starts the task, takes its output, keeps its deadlines, and writes down how
// it ended. It needs nothing of the agent once it runs, so the agent may be
// stopped, killed or replaced meanwhile. It is the same program as the agent.
//
// One goroutine does all of it, in rounds: wait for something to happen, then see
// what it was.
package shim

import (
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"k8s4r.io/k8s4r/internal/driver"
	"k8s4r.io/k8s4r/internal/proc"
)

// Word is the first argument of the agent's program that makes it a shim.
const Word = "shim"

// shim is the state of the process.
type shim struct {
	spec    Spec
	control int // orders
	said    *journal
	signals int
	contact *Contact
	drivers driver.Set
	output  *output
	alarm   *alarm

	task     driver.Running // or what sets it up; nil: neither, yet
	started  bool           // it is the task
	rerender *rerender      // nil: none goes on
	cause    string         // why it is being stopped
	killAt   time.Duration  // since boot; zero: nobody stops it
	killed   bool
	// timeoutAt is since boot; zero: none.
	timeoutAt time.Duration
	// fenceAt is since boot, as the contact file last said; zero: not read yet.
	fenceAt time.Duration
}

// Main is the program, if its arguments make it a shim or what sets a task up.
// The status is its exit status, which says nothing of the task's.
func Main(args []string) (status int, ours bool) {
	if len(args) == 0 {
		return 0, false
	}
	switch args[0] {
	case Word:
		return exitStatus(parent()), true
	case setUpWord:
		return setUpMain(), true
	}
	return 0, false
}

func exitStatus(err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, "k8s4r-agent shim:", err)
	return 1
}

// parent is the shim.
func parent() error {
	// A kernel before 5.11 cannot do it at once; there what the agent leaves open
	// stays so.
	_ = unix.CloseRange(lineFD, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
	unix.CloseOnExec(lineFD)
	spec, control, err := takeErrand(lineFD)
	if err != nil || control < 0 {
		return err
	}
	return run(spec, control)
}

func run(spec Spec, control int) error {
	s := &shim{spec: spec, control: control, drivers: driver.Builtin(spec.Engine)}
	if err := s.open(); err != nil {
		return err
	}
	pid, ticks, err := proc.Self()
	if err != nil {
		return err
	}
	if err := s.said.say(State{Shim: &Process{PID: pid, StartTicks: ticks}}); err != nil {
		return err
	}
	exit := s.live()
	if exit.At.IsZero() {
		exit.At = time.Now()
	}
	return errors.Join(s.said.say(State{Exit: &exit}), spec.Confinement.Cgroup.Remove())
}

// open takes hold of all files while their paths can be seen.
func (s *shim) open() (err error) {
	// What is orphaned below us comes to us, and dies with the task.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become subreaper: %w", err)
	}
	if s.signals, err = catch(syscall.SIGTERM, syscall.SIGCHLD); err != nil {
		return err
	}
	if s.said, err = openJournal(s.spec.Dir); err != nil {
		return err
	}
	if s.spec.StopAfter > 0 {
		if s.contact, err = OpenContact(s.spec.ContactDir); err != nil {
			return err
		}
	}
	if s.output, err = openOutput(s.spec.LogDir, s.spec.LogBytes); err != nil {
		return err
	}
	s.alarm, err = newAlarm()
	return err
}

// catch turns signals into bytes to read.
func catch(which ...os.Signal) (int, error) {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_NONBLOCK|unix.O_CLOEXEC); err != nil {
		return -1, os.NewSyscallError("pipe", err)
	}
	caught := make(chan os.Signal, 16)
	signal.Notify(caught, which...)
	// What ends a process by itself, and is nothing to us. It is not ignored:
	// the task would ignore it too.
	signal.Notify(caught, syscall.SIGPIPE, syscall.SIGHUP, syscall.SIGINT)
	go func() {
		for c := range caught {
			_, _ = unix.Write(ends[1], []byte{byte(c.(syscall.Signal))})
		}
	}()
	return ends[0], nil
}
