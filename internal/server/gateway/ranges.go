package gateway

import (
	"fmt"
	"time"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/array"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/protocol/indexset"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// ReasonIndexesMissing is the reason of a range that its robot reported as completed without the ends
// of all its indexes.
const ReasonIndexesMissing = "IndexesMissing"

// maxNamedIndexes bounds the indexes that a message names, in bytes.
const maxNamedIndexes = 200

// endsOf returns the ends of indexes in a report.
func endsOf(now time.Time, t *robotv1.Task, r report) array.Ends {
	e := array.Ends{Attempt: r.attempt}
	if r.Array == nil {
		return e
	}
	e.Succeeded, _ = indexset.Parse(r.Array.Succeeded)
	e.Failed, _ = indexset.Parse(r.Array.Failed)
	e.Durations = r.Array.Durations
	robot, namespace := r.robot, ""
	if a := t.Status.FindAttempt(r.attempt); a != nil {
		namespace = a.RobotNamespace
	}
	for _, f := range r.Array.Failures {
		e.Failures = append(e.Failures, robotv1.IndexFailure{
			Index: f.Index, Robot: robot, RobotNamespace: namespace,
			ExitCode: new(f.ExitCode), Signal: f.Signal, Reason: f.Reason, FinishedAt: robotTime(now, &f.FinishedAt),
		})
	}
	return e
}

// concludeRange returns the report of the end of an attempt with the state that follows from the ends
// of the indexes: a range is completed if and only if all of them have ended. Reports of attempts that do
// not count stay as they are.
func concludeRange(now time.Time, t *robotv1.Task, r report) report {
	counts := r.attempt == t.Status.Attempt || isReconciling(t, r.attempt)
	if !t.IsRange() || !r.IsTerminal() || !counts {
		return r
	}
	merged := *t
	merged.Status.Array = array.Merge(t, endsOf(now, t, r))
	switch left := array.Left(&merged); {
	case left.IsEmpty():
		r.State, r.ExitCode, r.Signal, r.Reason = wire.ReportCompleted, 0, 0, ""
		if succeeded, failed := array.Ended(&merged); !failed.IsEmpty() {
			r.Message = fmt.Sprintf("%d of %d indexes failed", failed.Len(), failed.Len()+succeeded.Len())
		}
	case r.State == wire.ReportCompleted:
		r.State, r.Reason = wire.ReportFailed, ReasonIndexesMissing
		r.Message = fmt.Sprintf("the robot reported that the task has completed, but not the end of %d indexes: %s",
			left.Len(), wire.TruncateText(left.String(), maxNamedIndexes))
		if a := t.Status.FindAttempt(r.attempt); a != nil && a.Reason == ReasonAttemptAdopted {
			// The restored backup lacks the ends of an earlier attempt: without fault.
			r.Reason = wire.ReasonAgentRestarted
		}
	}
	return r
}

// mergeEnds adds the ends of indexes in a report of the current attempt. An attempt that is not on its
// robot any more adds none: its indexes may run elsewhere, or the task was requeued.
func mergeEnds(now time.Time, t *robotv1.Task, next *robotv1.TaskStatus, r report) {
	runs := r.IsTerminal() || r.State == wire.ReportRunning
	if t.IsRange() && runs && r.Array != nil && lifecycle.TaskState(t.Status.State).HoldsResources() {
		next.Array = array.Merge(t, endsOf(now, t, r))
	}
}

// hasEnds reports whether a report has the end of an index.
func (r report) hasEnds() bool {
	return r.Array != nil && (r.Array.Succeeded != "" || r.Array.Failed != "")
}

// isProgressOf reports whether a write of the report would only add ends of indexes to a range that
// runs.
func isProgressOf(t *robotv1.Task, r report) bool {
	return t.IsRange() && lifecycle.TaskState(t.Status.State) == lifecycle.TaskRunning &&
		r.hasEnds() && r.State == wire.ReportRunning && r.attempt == t.Status.Attempt
}

// startsNoIndex reports whether the current attempt of a range is to start no more indexes.
func startsNoIndex(t *robotv1.Task) bool {
	return t.IsRange() && t.Status.Attempt > 0 && t.Spec.Array.PauseAttempt == t.Status.Attempt
}
