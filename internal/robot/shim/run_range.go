package shim

import (
	"cmp"
	"fmt"
	"os"
	"syscall"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/driver"
)

// rangeRun is the progress of a shim through the indexes of a range.
type rangeRun struct {
	// stopReason is why no more indexes are started. If empty, they are.
	stopReason string
	// isPausing is true if none is started because the agent asked for a pause.
	isPausing bool
	// interrupted is the end of the index that was stopped with the range. If nil, none was.
	interrupted *driver.End
	ended       int   // how many indexes have an end
	killed      bool  // SIGKILL was needed for an index
	oomKills    int64 // driver.End.OOMKills of the last index
	outputs     map[string]string
	usesProcess bool // the indexes are processes of the robot
}

// reason returns why the range ends before all indexes have run. It is empty if it does not.
func (r *rangeRun) reason() string {
	if r.stopReason == "" && r.isPausing {
		return wire.ReasonPaused
	}
	return r.stopReason
}

// runRange runs the indexes of a range one after another. MayHaveStarted is written once: no index is
// ever started by another shim of the attempt.
func (s *shim) runRange() Exit {
	d, err := s.findDriver()
	if err == nil {
		err = s.recordShim(true)
	}
	fill := newFiller(s.spec)
	for n := 0; err == nil && n < len(s.spec.Range.Indexes); n++ {
		s.handleRequests() // those that came while an index started and ended
		s.enforceDeadlines()
		if s.indexes.reason() != "" {
			break
		}
		err = s.runIndex(d, fill, n)
	}
	return s.newRangeExit(err)
}

// runIndex runs the index at position n. It returns an error if that cannot be started. Then no other
// index can: it is the same command.
func (s *shim) runIndex(d driver.Driver, fill filler, n int) error {
	index := s.spec.Range.Indexes[n]
	if len(s.spec.Outputs) > 0 {
		_ = os.Remove(s.spec.OutputsFile) // a directory there has no outputs either
	}
	s.output.log.SetIndex(index, time.Now())
	if err := s.output.openStreams(); err != nil {
		return err
	}
	if err := s.state.appendIndexStart(index); err != nil {
		return fmt.Errorf("write the shim's state: %w", err)
	}
	config, env := fill.fillIn(s.spec.Range, n)
	task := s.newTask(config, env)
	task.Index = &driver.RangeIndex{Index: index, OOMKills: s.indexes.oomKills}
	if err := s.startProcess(d, task); err != nil {
		return fmt.Errorf("index %d: %w", index, err)
	}
	startedAt := time.Now()
	if n == 0 {
		s.recordStarted()
	}
	s.handleEventsUntilExit()
	s.finishIndex(index, startedAt)
	return nil
}

// finishIndex records how an index ended by itself, or at its timeout, and kills what is left of it.
func (s *shim) finishIndex(index int32, startedAt time.Time) {
	at := time.Now()
	s.awaitRerender()
	s.indexes.usesProcess = s.task.PID() != 0
	end := s.endTask()
	s.output.closeStreams(time.Now())
	s.detectShutdown(end)
	s.indexes.oomKills = end.OOMKills
	s.indexes.killed = s.indexes.killed || s.killed
	if s.stopReason == "" || s.stopReason == wire.ReasonTimeout {
		s.mergeOutputs() // before the end is recorded, after which the index never runs again
		s.state.holdIndexEnd(s.newIndexEnd(index, end, at, at.Sub(startedAt)))
		s.indexes.ended++
	} else {
		s.indexes.interrupted = &end
		s.indexes.stopReason = cmp.Or(s.indexes.stopReason, s.stopReason)
	}
	s.stopReason, s.killAt, s.killed, s.timeoutAt, s.orphansAt = "", 0, false, 0, 0
}

func (s *shim) newIndexEnd(index int32, end driver.End, at time.Time, took time.Duration) IndexEnd {
	e := IndexEnd{Index: index, Code: end.Code, Signal: end.Signal, At: at, Duration: took}
	switch {
	case s.stopReason == wire.ReasonTimeout && s.killed:
		e.Reason, e.Code, e.Signal = wire.ReasonTimeout, 128+int(syscall.SIGKILL), int(syscall.SIGKILL)
	case s.stopReason == wire.ReasonTimeout: // however the task handled SIGTERM
		e.Reason, e.Code = wire.ReasonTimeout, codeTerminated
	case end.OOM && end.Code != 0:
		e.Reason = wire.ReasonOOMKilled
	}
	return e
}

// newRangeExit returns the Exit of a range. err is why an index could not be started.
func (s *shim) newRangeExit(err error) Exit {
	s.output.finishLog(time.Now())
	r := &s.indexes
	e := Exit{Killed: r.killed, Outputs: r.outputs}
	if r.usesProcess {
		e.CPU, e.MemoryPeak = driver.MeasureUse(s.spec.Confinement.Cgroup)
	}
	switch {
	case r.stopReason == "" && err != nil:
		e.Code = -1
		e.setError(err)
	case r.interrupted != nil:
		e.Code, e.Signal, e.StopReason = r.interrupted.Code, r.interrupted.Signal, r.stopReason
	case r.ended < len(s.spec.Range.Indexes):
		e.Code, e.StopReason = -1, r.reason()
	}
	return e
}
