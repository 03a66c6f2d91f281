package task

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/wire"
)

// maxBackoff bounds how long a Task that came back waits for its next attempt.
const maxBackoff = 5 * time.Minute

// readyAt is when a Task that came back may be placed again. Zero: at once. One
// that brings down each agent it meets must not go round all robots as fast as
// they start.
//
// It counts from our own word that the Task is back: a robot's clock may be
// hours ahead.
func readyAt(t *v1alpha1.Task) time.Time {
	if at := t.Status.RetryAt; at != nil {
		return at.Time
	}
	c := meta.FindStatusCondition(t.Status.Conditions, v1alpha1.ConditionPlaced)
	wait := backoff(returns(t.Status.Attempts))
	if wait == 0 || c == nil || c.Status != metav1.ConditionFalse {
		return time.Time{}
	}
	return c.LastTransitionTime.Add(wait)
}

// returns counts the latest attempts, up to one that failed, that ended through
// no fault of the task.
func returns(attempts []v1alpha1.TaskAttempt) int {
	n := 0
	for i := len(attempts) - 1; i >= 0 && wire.NoFault(attempts[i].Reason); i-- {
		n++
	}
	return n
}

// backoff after so many returns: the first is an accident.
func backoff(returns int) time.Duration {
	if returns < 2 {
		return 0
	}
	return min(time.Second<<min(returns-2, 10), maxBackoff)
}
