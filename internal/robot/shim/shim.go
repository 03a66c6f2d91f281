// Package shim implements the process that is the parent of one task (docs/explanation/adr/0011).
//
// The shim starts the task, keeps its output, enforces its deadlines and records how it ended.
// While it runs it does not need the agent, which may be stopped, killed or replaced meanwhile. Two
// programs run it: the agent's, and for tasks that are processes of the robot a small one that the
// agent carries (package program). What only the agent's program can do is in package setup.
//
// One goroutine does all of this in rounds: wait for an event, then handle it.
package shim

import (
	"errors"
	"fmt"
	"math"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"k8s4r.io/k8s4r/internal/robot/driver"
	"k8s4r.io/k8s4r/internal/robot/proc"
)

// Subcommand is the first argument with which a program runs as a shim.
const Subcommand = "shim"

// CheckSubcommand is the argument with which the shim's own program does nothing, successfully.
const CheckSubcommand = "check"

// shim is the state of a shim process.
type shim struct {
	spec          Spec
	control       int // FIFO with requests of the agent
	state         *stateWriter
	signals       *signalPipe
	lastSeen      *LastSeenFile
	drivers       driver.Set
	agentProgram  string // the file of the agent's program, for set-ups
	output        *output
	deadlineTimer *bootTimer

	task       driver.Running // the task, an index or the set-up; nil: none runs
	started    bool           // task is the task itself, or an index
	indexes    rangeRun       // of spec.Range
	rerender   *rerender      // nil: no rendering is in progress
	stopReason string         // why the task is being stopped; empty: it is not
	killAt     time.Duration  // when to send SIGKILL, since boot; zero: never
	killed     bool
	// isRobotStopping is true if SIGTERM, or the agent's request because it is being stopped, came after
	// the task had exited.
	isRobotStopping bool
	orphansAt       time.Duration // when to call watchOrphans, since boot; zero: it was called
	watchesOrphans  bool
	// timeoutAt is the end of spec.Timeout, since boot, of the running index. If zero, there is none.
	timeoutAt time.Duration
	// selfStopAt is the self-stop deadline since boot, as of the last read of lastSeen. If zero,
	// the file has not been read yet.
	selfStopAt time.Duration
}

// Main runs a shim with the drivers of its program if args begin with Subcommand; ok reports whether
// they do. The status is the exit status of this process, not that of the task.
func Main(args []string, newDrivers func(engine string) driver.Set) (status int, ok bool) {
	if len(args) == 0 || args[0] != Subcommand {
		return 0, false
	}
	nameProcess()
	return exitStatus(runShim(newDrivers)), true
}

// nameProcess names this process in listings, which otherwise have the number of programFD.
func nameProcess() { _ = os.WriteFile("/proc/self/comm", []byte("k8s4r-shim"), 0) }

func exitStatus(err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, "k8s4r-agent shim:", err)
	return 1
}

// runShim runs the attempt that this process receives on requestFD.
func runShim(newDrivers func(engine string) driver.Set) error {
	// Kernels before 5.11 lack this flag. There, descriptors that the agent leaves open stay open.
	_ = unix.CloseRange(requestFD, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
	unix.CloseOnExec(requestFD)
	unix.CloseOnExec(programFD)
	r, err := receiveRequest(requestFD)
	if err != nil || r.control < 0 {
		return err
	}
	s := &shim{spec: r.spec, control: r.control, drivers: newDrivers(r.spec.Engine), agentProgram: r.agentProgram}
	return s.run()
}

// run runs the attempt.
func (s *shim) run() error {
	if err := s.openFiles(); err != nil {
		return err
	}
	exit := s.runTask()
	if exit.At.IsZero() {
		exit.At = time.Now().UTC()
	}
	return errors.Join(s.state.appendState(State{Exit: &exit}), s.spec.Confinement.Cgroup.Remove())
}

// recordShim records which process this is. mayHaveStarted is set right before the task is started.
func (s *shim) recordShim(mayHaveStarted bool) error {
	pid, ticks, err := proc.FindSelf()
	if err == nil {
		err = s.state.appendState(State{Shim: &Process{PID: pid, StartTicks: ticks}, MayHaveStarted: mayHaveStarted})
	}
	if err != nil {
		return fmt.Errorf("write the shim's state: %w", err)
	}
	return nil
}

// openFiles opens all files before mounts can hide their paths.
func (s *shim) openFiles() (err error) {
	// Orphaned processes of the task become children of the shim, which kills them when the task
	// ends.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become subreaper: %w", err)
	}
	if s.signals, err = newSignalPipe(); err != nil {
		return err
	}
	indexes := 0
	if s.spec.Range != nil {
		indexes = len(s.spec.Range.Indexes)
	}
	if s.state, err = openStateWriter(s.spec.Dir, indexes); err != nil {
		return err
	}
	if s.spec.SelfStopAfter > 0 {
		if s.lastSeen, err = OpenLastSeenFile(s.spec.LastSeenDir); err != nil {
			return err
		}
	}
	if s.output, err = openOutput(s.spec); err != nil {
		return err
	}
	s.deadlineTimer, err = newBootTimer()
	return err
}
