package shim

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/driver"
	"k8s4r.io/k8s4r/internal/robot/proc"
)

// runTask sets up and starts the task and returns after the last of its processes has exited.
func (s *shim) runTask() Exit {
	if s.outOfContact() {
		return Exit{Code: -1, StopReason: wire.ReasonSelfStopped}
	}
	if err := s.setUp(); err != nil || s.cause != "" {
		return s.endUnstarted(err)
	}
	if err := s.startTask(); err != nil {
		return s.endUnstarted(err)
	}
	s.awaitTask()
	return s.endTask()
}

// endUnstarted returns the Exit of a task that was stopped before its start or failed to start.
func (s *shim) endUnstarted(err error) Exit {
	s.output.finishLog(time.Now())
	e := Exit{Code: -1, StopReason: s.cause}
	if err != nil && s.cause == "" {
		e.Error, e.CommandNotFound = err.Error(), errors.Is(err, fs.ErrNotExist)
	}
	return e
}

// awaitTask handles events until the process in s.task has exited.
func (s *shim) awaitTask() {
	for !IsReadable(s.task.Done()) {
		s.awaitEvent()
		s.handleOrders()
		s.takeRendered()
		s.keepTime()
		s.output.drainAll(time.Now())
	}
}

// startTask starts the task. MayHaveStarted is written first, so that a crash in between cannot
// lead to a second start.
func (s *shim) startTask() error {
	d, ok := s.drivers[s.spec.Driver]
	if !ok {
		return fmt.Errorf("driver %.100q: %w", s.spec.Driver, driver.ErrNoDriver)
	}
	if err := s.said.appendState(State{MayHaveStarted: true}); err != nil {
		return fmt.Errorf("write down that the task starts: %w", err)
	}
	task, err := d.Start(driver.Task{
		Config: s.spec.Config, Dir: s.spec.WorkDir, Env: s.spec.Env, Confinement: s.spec.Confinement, Contained: s.spec.Contained,
		Stdout: s.output.stdout.theirs, Stderr: s.output.stderr.theirs,
	})
	s.output.closeChildEnds()
	if err != nil {
		return err
	}
	s.task, s.started = task, true
	started := startOf(task)
	if s.spec.Timeout > 0 {
		s.timeoutAt = SinceBoot() + s.spec.Timeout
	}
	if err := s.said.appendState(State{Started: &started}); err != nil {
		s.stopTask("StateLost", 0) // otherwise no agent could find the task's process
	}
	return nil
}

// startOf returns the task's first process with the PID that it has on the robot. Inside a PID
// namespace the shim sees a different one.
func startOf(task driver.Running) Started {
	started := Started{At: time.Now()}
	if task.PID() == 0 {
		return started
	}
	started.PID = proc.OfPIDFD(task.Done())
	started.StartTicks, _ = proc.StartTicks(started.PID) // an error means that it has exited already
	return started
}

// endTask records the exit code of the task's first process and kills all others.
func (s *shim) endTask() Exit {
	at := time.Now() // taken now, since killing the rest takes time
	end := s.task.End()
	s.output.finishLog(time.Now())
	e := Exit{At: at, Code: end.Code, Signal: end.Signal, StopReason: s.cause, Killed: s.killed, CPU: end.CPU, MemoryPeak: end.MemoryPeak, Outputs: s.readOutputs()}
	if end.OOM && e.Code != 0 && s.cause == "" {
		e.StopReason = wire.ReasonOOMKilled
	}
	return e
}

// keepTime enforces the deadlines that have passed.
func (s *shim) keepTime() {
	now := SinceBoot()
	if s.timeoutAt > 0 && now >= s.timeoutAt && s.killAt == 0 {
		s.stopTask(wire.ReasonTimeout, s.spec.KillTimeout)
	}
	if s.outOfContact() {
		// The server counts the grace from the self-stop deadline and then lets another robot run
		// the task. If the machine slept past the deadline, the grace may be over.
		s.stopTask(wire.ReasonSelfStopped, max(0, s.fenceAt+s.spec.KillTimeout-now))
	}
	if s.killAt > 0 && now >= s.killAt && !s.killed {
		s.killed = true
		s.task.Kill()
	}
}

// outOfContact reports whether the self-stop deadline has passed. The file is read again only
// then, since a newer heartbeat may have moved the deadline.
func (s *shim) outOfContact() bool {
	if s.spec.StopAfter == 0 || SinceBoot() < s.fenceAt {
		return false
	}
	s.fenceAt = s.contact.Read() + s.spec.StopAfter
	return SinceBoot() >= s.fenceAt
}

// nextDeadline returns the time since boot at which keepTime must be called. If zero, there is
// none.
func (s *shim) nextDeadline() time.Duration {
	switch {
	case s.killed:
		return 0
	case s.killAt > 0:
		return s.killAt
	case s.timeoutAt > 0 && s.fenceAt > 0:
		return min(s.timeoutAt, s.fenceAt)
	}
	return max(s.timeoutAt, s.fenceAt)
}

// stopTask sends SIGTERM, and has keepTime send SIGKILL after grace. The first cause and the
// shortest grace apply. A task that has just exited keeps its exit code; a task that is being set
// up is not started.
func (s *shim) stopTask(cause string, grace time.Duration) {
	if s.started && IsReadable(s.task.Done()) {
		return
	}
	killAt := SinceBoot() + grace
	if s.killAt == 0 {
		s.cause, s.killAt = cause, killAt
		s.task.Signal(syscall.SIGTERM)
	}
	s.killAt = min(s.killAt, killAt)
}
