package metrics

import (
	"time"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
)

// The outcomes of an attempt.
const (
	outcomeSucceeded = "succeeded"
	outcomeFailed    = "failed"
	outcomeCanceled  = "canceled"
)

// recordAttempts updates the metrics of attempts from a change of a task.
func recordAttempts(was, is *v1alpha1.Task, now time.Time) {
	if was.UID != is.UID {
		return // another task of the same name
	}
	if first := is.Status.FindAttempt(1); first != nil && first.StartedAt != nil && !hasBegun(was) {
		startSeconds.Observe(max(0, now.Sub(is.CreationTimestamp.Time).Seconds()))
	}
	for _, outcome := range attemptOutcomes(was, is) {
		attempts.WithLabelValues(outcome).Inc()
	}
}

func hasBegun(t *v1alpha1.Task) bool {
	a := t.Status.FindAttempt(1)
	return a == nil && len(t.Status.Attempts) > 0 || a != nil && a.StartedAt != nil
}

// attemptOutcomes returns the outcomes of the attempts that ended between was and is.
func attemptOutcomes(was, is *v1alpha1.Task) (all []string) {
	for _, a := range is.Status.Attempts {
		before := was.Status.FindAttempt(a.Attempt)
		if outcome := outcomeOf(&a); outcome != "" && (before == nil || outcomeOf(before) == "") {
			all = append(all, outcome)
		}
	}
	return all
}

// outcomeOf returns the outcome of an attempt, or the empty string if it has not ended.
func outcomeOf(a *v1alpha1.TaskAttempt) string {
	switch lifecycle.TaskState(a.State) {
	case lifecycle.TaskCompleted:
		return outcomeSucceeded
	case lifecycle.TaskCanceled:
		return outcomeCanceled
	case lifecycle.TaskFailed, lifecycle.TaskExited:
		return outcomeFailed
	default:
		if a.FinishedAt != nil {
			return outcomeFailed
		}
		return ""
	}
}
