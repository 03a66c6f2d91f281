package shim

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"time"

	"k8s4r.io/k8s4r/internal/driver"
	"k8s4r.io/k8s4r/internal/proc"
	"k8s4r.io/k8s4r/internal/wire"
)

// live is the life of the task, to the end of all of its processes.
func (s *shim) live() Exit {
	if s.outOfContact() {
		return Exit{Code: -1, Cause: wire.ReasonOutOfContact}
	}
	if err := s.setUp(); err != nil || s.cause != "" {
		return s.unstarted(err)
	}
	if err := s.start(); err != nil {
		return s.unstarted(err)
	}
	s.attend()
	return s.end()
}

// unstarted is the end of a task that was not started: because it could not, or
// was called off before.
func (s *shim) unstarted(err error) Exit {
	s.output.finish(time.Now())
	e := Exit{Code: -1, Cause: s.cause}
	if err != nil && s.cause == "" {
		e.Error, e.NoCommand = err.Error(), errors.Is(err, fs.ErrNotExist)
	}
	return e
}

// attend watches over what runs until it has ended.
func (s *shim) attend() {
	for !Readable(s.task.Done()) {
		s.wait()
		s.obey()
		s.rendered()
		s.keepTime()
		s.output.take(time.Now())
	}
}

// start starts the task. From the mark on it may have run.
func (s *shim) start() error {
	d, ok := s.drivers[s.spec.Driver]
	if !ok {
		return fmt.Errorf("driver %.100q: %w", s.spec.Driver, driver.ErrNoDriver)
	}
	if err := s.said.say(State{Begun: true}); err != nil {
		return fmt.Errorf("write down that the task starts: %w", err)
	}
	task, err := d.Start(driver.Task{
		Config: s.spec.Config, Dir: s.spec.WorkDir, Env: s.spec.Env, Confinement: s.spec.Confinement, Contained: s.spec.Contained,
		Stdout: s.output.stdout.theirs, Stderr: s.output.stderr.theirs,
	})
	s.output.given()
	if err != nil {
		return err
	}
	s.task, s.started = task, true
	started := startOf(task)
	if s.spec.Timeout > 0 {
		s.timeoutAt = SinceBoot() + s.spec.Timeout
	}
	if err := s.said.say(State{Started: &started}); err != nil {
		s.stop("StateLost", 0) // nobody would ever find it
	}
	return nil
}

// startOf says which process the task is, by the number that the robot knows it
// by: in a PID namespace we know another.
func startOf(task driver.Running) Started {
	started := Started{At: time.Now()}
	if task.PID() == 0 {
		return started
	}
	started.PID = proc.OfPIDFD(task.Done())
	started.StartTicks, _ = proc.StartTicks(started.PID) // an error: it has ended already
	return started
}

// end takes the exit code when the task's first process has ended, and ends all
// others.
func (s *shim) end() Exit {
	at := time.Now() // what it leaves behind takes its own time to go
	end := s.task.End()
	s.output.finish(time.Now())
	e := Exit{At: at, Code: end.Code, Signal: end.Signal, Cause: s.cause, Killed: s.killed, CPU: end.CPU, MemoryPeak: end.MemoryPeak, Outputs: s.outputs()}
	if end.OOM && e.Code != 0 && s.cause == "" {
		e.Cause = wire.ReasonOOMKilled
	}
	return e
}

// keepTime does what is due.
func (s *shim) keepTime() {
	now := SinceBoot()
	if s.timeoutAt > 0 && now >= s.timeoutAt && s.killAt == 0 {
		s.stop(wire.ReasonTimeout, s.spec.KillTimeout)
	}
	if s.outOfContact() {
		// The fleet counts the grace from the fence, and runs the task elsewhere after it: who was
		// asleep when it fell has had its grace.
		s.stop(wire.ReasonOutOfContact, max(0, s.fenceAt+s.spec.KillTimeout-now))
	}
	if s.killAt > 0 && now >= s.killAt && !s.killed {
		s.killed = true
		s.task.Kill()
	}
}

// outOfContact tells whether the robot has been so for too long. The file is read
// again only when the time has come: it may have moved on.
func (s *shim) outOfContact() bool {
	if s.spec.StopAfter == 0 || SinceBoot() < s.fenceAt {
		return false
	}
	s.fenceAt = s.contact.Read() + s.spec.StopAfter
	return SinceBoot() >= s.fenceAt
}

// due is since boot when keepTime has something to do. Zero: never.
func (s *shim) due() time.Duration {
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

// stop asks the task to end, and sees to it after grace. The first cause counts,
// and the shortest grace. What has just ended by itself keeps its exit code, which
// says how it went; what has only just been set up is not started any more.
func (s *shim) stop(cause string, grace time.Duration) {
	if s.started && Readable(s.task.Done()) {
		return
	}
	killAt := SinceBoot() + grace
	if s.killAt == 0 {
		s.cause, s.killAt = cause, killAt
		s.task.Signal(syscall.SIGTERM)
	}
	s.killAt = min(s.killAt, killAt)
}
