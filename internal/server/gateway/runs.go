package gateway

import (
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

const (
	// maxRunDelay bounds how far ahead of our clock the next run of an attempt can be.
	maxRunDelay = 366 * 24 * time.Hour
	// runWritePeriod is the minimum time between two writes about the runs of one task, other than of
	// the start and the end of an attempt.
	runWritePeriod = time.Second
)

// runPosition orders the reports of one attempt that its agent restarts: a run starts and ends, the
// next one starts, and so on. The zero value: no run is known.
type runPosition struct {
	run      int64
	hasEnded bool // the next run is due
}

// isBefore reports whether an attempt is at p before it is at o.
func (p runPosition) isBefore(o runPosition) bool {
	return p.run < o.run || p.run == o.run && !p.hasEnded && o.hasEnded
}

func (r report) runPosition() runPosition { return runPosition{r.Run, r.NextRunAt != nil} }

func runPositionOf(a *robotv1.TaskAttempt) runPosition {
	return runPosition{a.RunCount, a.NextRunAt != nil}
}

// withRunsOf returns the report with only those runs that the status of the task may have. The manager
// decides about the attempts of an array, and an attempt that has ended has no next run.
func (r report) withRunsOf(t *robotv1.Task) report {
	if t.Spec.Array != nil {
		r.Run, r.Runs = 0, nil
	}
	if r.Run == 0 || r.IsTerminal() {
		r.NextRunAt = nil
	}
	return r
}

// isOutdated reports whether the status has a later run than a report, which arrived late. Agents report
// the last run only, so a report without any does not concern them.
func isOutdated(t *robotv1.Task, r report) bool {
	a := t.Status.FindAttempt(r.attempt)
	return a != nil && r.Run > 0 && !r.IsTerminal() && r.runPosition().isBefore(runPositionOf(a))
}

// isNewRun reports whether a report is about a later run than the status, or its end.
func isNewRun(a *robotv1.TaskAttempt, r report) bool {
	return a != nil && r.Run > 0 && runPositionOf(a).isBefore(r.runPosition())
}

// recordRuns records the runs in a report that is not outdated. Runs are never taken back: the end of an
// attempt whose agent has lost its journal has none.
func recordRuns(now time.Time, a *robotv1.TaskAttempt, r report) {
	isNew := isNewRun(a, r)
	if isNew || r.IsTerminal() && r.Run == a.RunCount {
		a.RunCount = r.Run
		if r.Run > 1 && len(r.Runs) > 0 {
			a.Runs = taskRuns(r.Runs)
		}
	}
	if isNew || r.IsTerminal() || r.Run == 0 {
		a.NextRunAt = nextRunTime(now, r)
	}
}

// taskRuns returns reported runs as the status has them. Implausible times are left out.
func taskRuns(reported []wire.Run) (runs []robotv1.TaskRun) {
	for _, r := range reported {
		run := robotv1.TaskRun{Run: r.Run, StartedAt: plausibleTime(r.StartedAt), Reason: r.Reason}
		if r.FinishedAt != nil {
			run.FinishedAt, run.ExitCode, run.Signal = plausibleTime(r.FinishedAt), new(r.ExitCode), r.Signal
		}
		runs = append(runs, run)
	}
	return runs
}

// nextRunTime returns when the next run starts, by the robot's clock. Nil: none is due.
func nextRunTime(now time.Time, r report) *metav1.MicroTime {
	if r.NextRunAt == nil {
		return nil
	}
	at := *r.NextRunAt
	if last := now.Add(maxRunDelay); at.After(last) {
		at = last
	}
	return robotTime(now, &at)
}

// recordAttemptStart records when the first run of an attempt started, unless it is known.
func recordAttemptStart(now time.Time, a *robotv1.TaskAttempt, r report) {
	if a.StartedAt == nil || r.StartedAt != nil && a.RunCount <= 1 {
		a.StartedAt = attemptStart(now, r)
	}
}

// attemptStart returns when the first run of an attempt started, or the first one that the report has.
func attemptStart(now time.Time, r report) *metav1.MicroTime {
	if len(r.Runs) > 0 && r.Runs[0].StartedAt != nil {
		return robotTime(now, r.Runs[0].StartedAt)
	}
	return startOf(now, r)
}

// runReason returns the reason of a running task after the report.
func (r report) runReason() string {
	if r.NextRunAt != nil {
		return wire.ReasonRestarting
	}
	return ""
}

// startsNoRun reports whether the agent is to start no further run of the current attempt.
func startsNoRun(t *robotv1.Task) bool {
	return t.Spec.Array == nil && t.Status.Attempt > 0 && t.Status.PauseAttempt == t.Status.Attempt
}

// delayRunLocked delays the write of a report that a run has ended or another one has started, if the
// last such write was less than runWritePeriod ago. The agent is to send no more either.
func (w *reportWorker) delayRunLocked(b *batch, r report) {
	isStart := !runPosition{run: 1}.isBefore(r.runPosition())
	last, ok := w.runWrites[r.uid]
	if due := last.Add(runWritePeriod); ok && !isStart && !r.IsTerminal() && b.due.Before(due) && !slices.ContainsFunc(b.reports, isEnd) {
		b.due = due
	}
}

// recordRunWrite remembers when reports about runs of a task were written.
func (w *reportWorker) recordRunWrite(rs []report) {
	if !slices.ContainsFunc(rs, func(r report) bool { return r.Run > 0 && !r.IsTerminal() }) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now()
	maps.DeleteFunc(w.runWrites, func(_ types.UID, at time.Time) bool { return now.Sub(at) >= runWritePeriod })
	if w.runWrites == nil {
		w.runWrites = map[types.UID]time.Time{}
	}
	w.runWrites[rs[0].uid] = now
}
