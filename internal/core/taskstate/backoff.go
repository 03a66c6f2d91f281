package taskstate

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// MaxBackoff bounds how long a Task that was returned waits for its next attempt.
const MaxBackoff = 5 * time.Minute

// NextAttemptTime returns when a waiting Task may be placed again. Zero means at once.
//
// A task that brings down each agent must not visit all robots as fast as they
// start. The wait counts from the manager's own condition, because a robot's clock
// may be hours ahead.
func NextAttemptTime(t *v1alpha1.Task) time.Time {
	if at := t.Status.RetryAt; at != nil {
		return at.Time
	}
	c := meta.FindStatusCondition(t.Status.Conditions, v1alpha1.ConditionPlaced)
	wait := returnBackoff(countReturns(t.Status.Attempts))
	if wait == 0 || c == nil || c.Status != metav1.ConditionFalse {
		return time.Time{}
	}
	return c.LastTransitionTime.Add(wait)
}

// countReturns counts the latest consecutive attempts that ended through no fault
// of the task.
func countReturns(attempts []v1alpha1.TaskAttempt) int {
	n := 0
	for i := len(attempts) - 1; i >= 0 && wire.IsWithoutFault(attempts[i].Reason); i-- {
		n++
	}
	return n
}

// returnBackoff returns the wait after so many returns. The first return is free.
func returnBackoff(returns int) time.Duration {
	if returns < 2 {
		return 0
	}
	return min(time.Second<<min(returns-2, 10), MaxBackoff)
}
