package taskstate

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// OtherOpenAttempts returns the attempts beside the current one that hold room on a robot,
// because their robots have not reported their end.
func OtherOpenAttempts(t *v1alpha1.Task) (open []*v1alpha1.TaskAttempt) {
	active := lifecycle.TaskState(t.Status.State).IsActive()
	for i := range t.Status.Attempts {
		a := &t.Status.Attempts[i]
		isCurrent := active && a.Attempt == t.Status.Attempt
		if a.FinishedAt == nil && a.Robot != "" && !isCurrent {
			open = append(open, a)
		}
	}
	return open
}

// AwaitsIndexFailure reports whether the Task runs an index of an array whose failure in its range was
// not recorded as the first attempt yet.
func AwaitsIndexFailure(t *v1alpha1.Task) bool {
	a := t.Spec.Array
	return a != nil && a.Index != nil && a.Failure != nil && t.Status.Attempt == 0 && len(t.Status.Attempts) == 0
}

// CanBeRestored reports whether an attempt may become the current one again: it is the
// lost attempt of a task that has not ended.
func CanBeRestored(t *v1alpha1.Task, a *v1alpha1.TaskAttempt) bool {
	return a.Attempt == t.Status.LostAttempt && t.DeletionTimestamp == nil && !lifecycle.TaskState(t.Status.State).IsTerminal()
}

// LostAttemptRobot returns the robot of the open lost attempt, or "" if there is none.
func LostAttemptRobot(t *v1alpha1.Task) string {
	if a := t.Status.FindAttempt(t.Status.LostAttempt); a != nil && a.FinishedAt == nil && CanBeRestored(t, a) {
		return a.Robot
	}
	return ""
}

// LastPlacement returns the robot of the current attempt, and when the task was bound
// there or, if it waits again, when it left. The time is zero if unknown.
func LastPlacement(t *v1alpha1.Task) (robot string, changed time.Time) {
	if a := t.Status.FindAttempt(t.Status.Attempt); a != nil {
		robot = a.Robot
	}
	if c := meta.FindStatusCondition(t.Status.Conditions, v1alpha1.ConditionPlaced); c != nil {
		changed = c.LastTransitionTime.Time
	}
	return robot, changed
}

// KillTimeout returns how long the agent waits after SIGTERM before it kills the task:
// spec.killTimeout or its default.
func KillTimeout(t *v1alpha1.Task) time.Duration {
	if t.Spec.KillTimeout == nil {
		return wire.DefaultKillTimeout
	}
	return t.Spec.KillTimeout.Value()
}
