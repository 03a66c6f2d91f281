package runner

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/indexset"
	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/shim"
)

const (
	// defaultProgressInterval is the shortest pause between two reports about the indexes of a range
	// that have ended while others still run.
	defaultProgressInterval = 10 * time.Second
	// progressJitter is the part of the interval that is added at random, so that the reports of many
	// robots that started at once spread.
	progressJitter = 0.2
)

// arrayRange is the progress of a run through a range of indexes.
type arrayRange struct {
	indexes  indexset.Set      // those of the dispatch
	running  *int32            // the index without an end, if one was started
	report   *wire.ArrayReport // as of the last read of the shim's state
	ended    int               // indexes in report
	reported int               // indexes in the last report that was queued
	dueAt    time.Time         // of the next report while it runs
	isPaused bool              // the shim was asked to start no more indexes
	// pauseError is why the shim could not be asked. Nil: it was, or did not have to be.
	pauseError error
}

// newArrayRange returns nil if the task runs no range.
func newArrayRange(a *wire.TaskArray) *arrayRange {
	if a == nil || a.Index != nil {
		return nil
	}
	indexes, _ := indexset.Parse(a.Indexes) // checkArray has returned the error
	return &arrayRange{indexes: indexes, report: &wire.ArrayReport{}}
}

// checkArray returns why the task cannot be run for its indexes.
func checkArray(a *wire.TaskArray) error {
	if a == nil {
		return nil
	}
	if a.Index != nil {
		if *a.Index < 0 || *a.Index > indexset.MaxIndex || a.Indexes != "" || len(a.Items) > 1 {
			return fmt.Errorf("array.index: must be between 0 and %d, without indexes, and with one item at most", indexset.MaxIndex)
		}
		return nil
	}
	indexes, err := indexset.Parse(a.Indexes)
	switch {
	case err != nil:
		return fmt.Errorf("array.indexes: %w", err)
	case indexes.IsEmpty() || indexes.Len() > wire.MaxRangeSize:
		return fmt.Errorf("array.indexes: must have between 1 and %d indexes", wire.MaxRangeSize)
	case len(a.Items) > 0 && len(a.Items) != indexes.Len():
		return fmt.Errorf("array.items: has %d items for %d indexes; it must have one for each, or none", len(a.Items), indexes.Len())
	}
	return nil
}

// shimRange returns the range as the shim takes it. It is nil if the task runs no range.
func (attempt *attempt) shimRange() *shim.Range {
	if attempt.array == nil {
		return nil
	}
	return &shim.Range{Indexes: slices.Collect(attempt.array.indexes.All()), Items: attempt.task.Spec.Array.Items}
}

// addArrayVariables sets the variables of the index. The shim of a range fills in the values.
func addArrayVariables(env map[string]string, a *wire.TaskArray) {
	switch {
	case a == nil:
		return
	case a.Index != nil:
		env[wire.EnvTaskIndex] = fmt.Sprint(*a.Index)
		if len(a.Items) > 0 {
			env[wire.EnvTaskItem] = a.Items[0]
		}
		return
	}
	env[wire.EnvTaskIndex] = shim.IndexMark
	if len(a.Items) > 0 {
		env[wire.EnvTaskItem] = shim.ItemMark
	}
}

// errIndexInCommand rejects a command that differs for each index: the policy evaluates it once.
var errIndexInCommand = errors.New("must not contain the index or the item of an array; pass them as arguments")

// checkCommandOfRange returns an error if the command has marks of the shim.
func checkCommandOfRange(c wire.TaskConfig) error {
	switch {
	case c.Exec != nil && shim.HasMarks(c.Exec.Command):
		return fmt.Errorf("config.execConfig.command: %w", errIndexInCommand)
	case c.Docker != nil && shim.HasMarks(c.Docker.Command):
		return fmt.Errorf("config.dockerConfig.command: %w", errIndexInCommand)
	}
	return nil
}

// withoutMarks returns the variables that are the same for all indexes: artifacts and templates are put
// into the directory once.
func withoutMarks(env map[string]string) map[string]string {
	same := make(map[string]string, len(env))
	for name, value := range env {
		if !shim.HasMarks(value) {
			same[name] = value
		}
	}
	return same
}

// setIndexes updates the report of a range by the state of its shim.
func (attempt *attempt) setIndexes(x shim.Indexes) {
	if a := attempt.array; a != nil {
		a.running, a.ended, a.report = x.Running, len(x.Ends), newArrayReport(x.Ends)
	}
}

// newArrayReport returns the report about indexes that have ended.
func newArrayReport(ends []shim.IndexEnd) *wire.ArrayReport {
	var succeeded, failed []int32
	report := &wire.ArrayReport{}
	for _, e := range ends {
		report.Durations = countDuration(report.Durations, e.Duration)
		if e.HasSucceeded() {
			succeeded = append(succeeded, e.Index)
			continue
		}
		failed = append(failed, e.Index)
		if len(report.Failures) < wire.MaxIndexFailures {
			report.Failures = append(report.Failures, newIndexFailure(e))
		}
	}
	report.Succeeded, report.Failed = indexset.Of(succeeded...).String(), indexset.Of(failed...).String()
	return report
}

// countDuration adds a duration to the counts of wire.ArrayReport.Durations.
func countDuration(counts []int32, took time.Duration) []int32 {
	place := min(bits.Len64(uint64(max(took.Milliseconds(), 0))), wire.MaxDurationCounts-1)
	for len(counts) <= place {
		counts = append(counts, 0)
	}
	counts[place]++
	return counts
}

func newIndexFailure(e shim.IndexEnd) wire.IndexFailure {
	f := wire.IndexFailure{Index: e.Index, ExitCode: int32(e.Code), Signal: int32(e.Signal), Reason: e.Reason, FinishedAt: e.At}
	switch {
	case f.Reason != "":
	case f.Signal != 0:
		f.Reason = wire.ReasonSignaled
	default:
		f.Reason = wire.ReasonExited
	}
	return f
}

// describeEnd returns the report about the end of a run with the number of indexes in its message.
func (a *arrayRange) describeEnd(s wire.Status) wire.Status {
	if a == nil {
		return s
	}
	failed, _ := indexset.Parse(a.report.Failed)
	counts := fmt.Sprintf("%d of %d indexes have ended, %d of them have failed", a.ended, a.indexes.Len(), failed.Len())
	switch {
	case s.State == wire.ReportCompleted:
		s.Message = fmt.Sprintf("Task completed: of %d indexes, %d have failed", a.indexes.Len(), failed.Len())
	case (s.Reason == wire.ReasonAgentRestarted || s.Reason == wire.ReasonRobotRebooted) && a.running != nil:
		s.Message = fmt.Sprintf("%s; index %d was running, %s", s.Message, *a.running, counts)
	default:
		s.Message += "; " + counts
	}
	return s
}

// untilProgress returns the time until reportProgress has something to do. It is false if no range runs.
func (r *Runner) untilProgress() (wait time.Duration, isNeeded bool) {
	var next time.Time
	for _, attempt := range r.byShim {
		if attempt.array != nil && (!isNeeded || attempt.array.dueAt.Before(next)) {
			next, isNeeded = attempt.array.dueAt, true
		}
	}
	return max(next.Sub(r.now()), 0), isNeeded
}

// reportProgress reports the indexes of running ranges that have ended since the last report.
func (r *Runner) reportProgress(p *plan) {
	for s, attempt := range r.byShim {
		a := attempt.array
		if a == nil || r.now().Before(a.dueAt) {
			continue
		}
		r.delayProgress(a)
		state, err := r.shims.ReadState(s)
		if err != nil {
			r.problems.Warn("the state of a range cannot be read", err)
			continue
		}
		if attempt.setIndexes(state.Indexes); a.ended == a.reported || attempt.startedAt.IsZero() {
			continue
		}
		p.reports = append(p.reports, r.buildReport(attempt, wire.Status{
			State: wire.ReportRunning, Event: "Progress", Message: fmt.Sprintf("%d of %d indexes have ended", a.ended, a.indexes.Len()),
		}))
	}
}

// delayProgress sets when the next report about a range is due.
func (r *Runner) delayProgress(a *arrayRange) {
	a.dueAt = r.now().Add(r.progressInterval + r.jitter(time.Duration(progressJitter*float64(r.progressInterval))))
}

// randomDuration returns a random duration below most.
func randomDuration(most time.Duration) time.Duration {
	if most <= 0 {
		return 0
	}
	return rand.N(most)
}

// pauseRange has a range start no more indexes, if the attempt in the list runs one here.
func (r *Runner) pauseRange(ref wire.TaskReference) {
	attempt := r.live[ref.UID]
	if attempt == nil || attempt.number != max(ref.Attempt, 1) || attempt.array == nil {
		return
	}
	if attempt.shim == nil {
		attempt.stopReason = cmp.Or(attempt.stopReason, wire.ReasonPaused)
		return
	}
	r.pauseShim(attempt)
}

// pauseShim has the shim of a range start no more indexes.
func (r *Runner) pauseShim(attempt *attempt) {
	if attempt.array.isPaused {
		return
	}
	err := r.shims.Pause(attempt.shim)
	if err != nil {
		r.problems.Warn("a range cannot be paused, will retry", err)
	}
	attempt.array.isPaused, attempt.array.pauseError = err == nil, err
}
