package shim

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/driver"
	"k8s4r.io/k8s4r/internal/robot/proc"
)

// runTask sets up and starts the task and returns after the last of its processes has exited.
func (s *shim) runTask() Exit {
	if s.isPastSelfStop() {
		return Exit{Code: -1, StopReason: wire.ReasonSelfStopped}
	}
	if err := s.setUp(); err != nil || s.stopReason != "" {
		return s.newUnstartedExit(err)
	}
	if s.spec.Range != nil {
		return s.runRange()
	}
	if err := s.startTask(); err != nil {
		return s.newUnstartedExit(err)
	}
	s.handleEventsUntilExit()
	return s.finishTask()
}

// newUnstartedExit returns the Exit of a task that was stopped before its start or failed to start.
func (s *shim) newUnstartedExit(err error) Exit {
	s.output.finishLog(time.Now())
	e := Exit{Code: -1, StopReason: s.stopReason}
	if err != nil && s.stopReason == "" {
		e.setError(err)
	}
	return e
}

// setError sets why the task could not be started.
func (e *Exit) setError(err error) {
	e.Error, e.CommandNotFound = err.Error(), errors.Is(err, fs.ErrNotExist)
}

// handleEventsUntilExit handles events until the process in s.task has exited.
func (s *shim) handleEventsUntilExit() {
	s.watchOrphansLater()
	for !IsReadable(s.task.Done()) {
		s.awaitEvent()
		s.handleRequests()
		s.finishRerender()
		s.enforceDeadlines()
		s.output.drainAll(time.Now())
	}
}

// startTask starts the task. MayHaveStarted is written first, so that a crash in between cannot
// lead to a second start.
func (s *shim) startTask() error {
	d, err := s.findDriver()
	if err != nil {
		return err
	}
	if err := s.recordShim(true); err != nil {
		return err
	}
	if err := s.startProcess(d, s.newTask(s.spec.Config, s.spec.Env)); err != nil {
		return err
	}
	s.recordStarted()
	return nil
}

func (s *shim) findDriver() (driver.Driver, error) {
	d, ok := s.drivers[s.spec.Driver]
	if !ok {
		return nil, fmt.Errorf("driver %.100q: %w", s.spec.Driver, driver.ErrNoDriver)
	}
	return d, nil
}

func (s *shim) newTask(config wire.TaskConfig, env map[string]string) driver.Task {
	return driver.Task{
		Config: config, Dir: s.spec.WorkDir, Env: env, Confinement: s.spec.Confinement, Contained: s.spec.Contained,
		TimerSlack: s.spec.TimerSlack, Stdout: s.output.stdout.writeEnd, Stderr: s.output.stderr.writeEnd,
	}
}

// startProcess starts the process of the task, or of an index.
func (s *shim) startProcess(d driver.Driver, t driver.Task) error {
	task, err := d.Start(t)
	s.output.closeChildEnds()
	if err != nil {
		return err
	}
	s.task, s.started = task, true
	if s.spec.Timeout > 0 {
		s.timeoutAt = SinceBoot() + s.spec.Timeout
	}
	return nil
}

// recordStarted records the process that was started, and notifies the agent.
func (s *shim) recordStarted() {
	started := newStarted(s.task)
	if err := s.state.appendState(State{Started: &started}); err != nil {
		s.stopTask("StateLost", 0) // otherwise no agent could find the task's process
	}
	if s.spec.SetUp != nil {
		s.state.syncFile() // a start that a power cut removes would have the artifacts downloaded again
	}
	s.state.notifyAgent()
}

// newStarted returns the task's first process with the PID that it has on the robot. Inside a PID
// namespace the shim sees a different one.
func newStarted(task driver.Running) Started {
	started := Started{At: time.Now().UTC()} // the local time is in a file that would have to be read
	if started.PID = task.PID(); started.PID == 0 {
		return started
	}
	if os.Getpid() == 1 {
		started.PID = proc.OfPIDFD(task.Done())
	}
	started.StartTicks, _ = proc.StartTicks(started.PID) // an error means that it has exited already
	return started
}

// endTask returns how the process in s.task ended, and kills what is left of it.
func (s *shim) endTask() driver.End {
	end := s.task.End()
	s.task, s.started = nil, false
	return end
}

// finishTask returns the Exit of the task's first process and kills all others.
func (s *shim) finishTask() Exit {
	at := time.Now().UTC() // taken now, since killing the rest takes time
	end := s.endTask()
	s.output.finishLog(time.Now())
	s.detectShutdown(end)
	e := Exit{At: at, Code: end.Code, Signal: end.Signal, StopReason: s.stopReason, Killed: s.killed, CPU: end.CPU, MemoryPeak: end.MemoryPeak, Outputs: s.readOutputs()}
	if end.OOM && e.Code != 0 && s.stopReason == "" {
		e.StopReason = wire.ReasonOOMKilled
	}
	return e
}

// enforceDeadlines enforces the deadlines that have passed.
func (s *shim) enforceDeadlines() {
	now := SinceBoot()
	if s.orphansAt > 0 && now >= s.orphansAt {
		s.watchOrphans()
	}
	if s.timeoutAt > 0 && now >= s.timeoutAt && s.killAt == 0 {
		s.stopTask(wire.ReasonTimeout, s.spec.KillTimeout)
	}
	if s.isPastSelfStop() {
		// The manager counts the grace from the self-stop deadline and then creates a replacement
		// on another robot. If the machine slept past the deadline, the grace may be over.
		s.stopTask(wire.ReasonSelfStopped, max(0, s.selfStopAt+s.spec.KillTimeout-now))
	}
	if s.killAt > 0 && now >= s.killAt && !s.killed {
		s.killed = true
		s.task.Kill()
	}
}

// isPastSelfStop reports whether the self-stop deadline has passed. The file is read again only
// then, since a newer heartbeat may have moved the deadline.
func (s *shim) isPastSelfStop() bool {
	if s.spec.SelfStopAfter == 0 || SinceBoot() < s.selfStopAt {
		return false
	}
	s.selfStopAt = s.lastSeen.Read() + s.spec.SelfStopAfter
	return SinceBoot() >= s.selfStopAt
}

// nextDeadline returns the time since boot at which enforceDeadlines must be called. It is zero if
// there is no deadline.
func (s *shim) nextDeadline() time.Duration {
	switch {
	case s.killed:
		return 0
	case s.killAt > 0:
		return s.killAt
	case s.timeoutAt > 0 && s.selfStopAt > 0:
		return min(s.timeoutAt, s.selfStopAt)
	}
	return max(s.timeoutAt, s.selfStopAt)
}

// stopTask sends SIGTERM, and has enforceDeadlines send SIGKILL after grace. The first reason and
// the shortest grace apply. A task that has just exited keeps its exit code; a task that is being
// set up is not started. Of a range no more indexes are started, except after a timeout.
func (s *shim) stopTask(reason string, grace time.Duration) {
	if reason != wire.ReasonTimeout {
		s.indexes.stopReason = cmp.Or(s.indexes.stopReason, reason)
	}
	if s.task == nil || s.started && IsReadable(s.task.Done()) {
		s.isRobotStopping = s.isRobotStopping || reason == wire.ReasonAgentStopped
		return
	}
	killAt := SinceBoot() + grace
	if s.killAt == 0 {
		s.stopReason, s.killAt = reason, killAt
		s.task.Signal(syscall.SIGTERM)
	}
	s.killAt = min(s.killAt, killAt)
}
