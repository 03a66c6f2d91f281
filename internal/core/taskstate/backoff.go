package taskstate

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// MaxBackoff bounds how long an interrupted Task waits for its next attempt.
const MaxBackoff = 5 * time.Minute

// NextAttemptTime returns when a waiting Task may be placed again. Zero means at once.
//
// A task that crashes every agent must not reach all robots as fast as they start. The
// wait is measured from the condition Placed, which the manager wrote, because a robot's
// clock may be hours ahead.
func NextAttemptTime(t *v1alpha1.Task) time.Time {
	if at := t.Status.RetryAt; at != nil {
		return at.Time
	}
	c := meta.FindStatusCondition(t.Status.Conditions, v1alpha1.ConditionPlaced)
	wait := interruptionBackoff(countInterruptions(t.Status.Attempts))
	if wait == 0 || c == nil || c.Status != metav1.ConditionFalse {
		return time.Time{}
	}
	return c.LastTransitionTime.Add(wait)
}

// countInterruptions counts the latest consecutive attempts that ended without fault.
func countInterruptions(attempts []v1alpha1.TaskAttempt) int {
	n := 0
	for i := len(attempts) - 1; i >= 0 && wire.IsWithoutFault(attempts[i].Reason); i-- {
		n++
	}
	return n
}

// interruptionBackoff returns the wait after n consecutive interruptions. There is none
// after the first.
func interruptionBackoff(n int) time.Duration {
	if n < 2 {
		return 0
	}
	return min(time.Second<<min(n-2, 10), MaxBackoff)
}
