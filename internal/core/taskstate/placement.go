package taskstate

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// AnnotationPlacedBy marks a Task without a Job whose robot the manager chose and may
// change. Without the annotation, a user chose spec.targetRobot.
const AnnotationPlacedBy = "robot.k8s4r.io/placed-by"

// Reasons of the condition Placed of Tasks that the scheduler must not place.
const (
	// ReasonAwaitingLostAttempt is the reason of a Task that will fail unless its lost
	// attempt completes.
	ReasonAwaitingLostAttempt = "AwaitingLostAttempt"
	// ReasonAwaitingOtherAttempts is the reason of a Task that waits for the end of another
	// attempt, which must not overlap the next one.
	ReasonAwaitingOtherAttempts = "AwaitingOtherAttempts"
)

// ReasonAwaitingJournals is why no Task is placed or dispatched after a restore from a backup, until
// the connected robots have reported what they ran since. It is in the ConfigMap k8s4r-restore of
// k8s4r-system.
const ReasonAwaitingJournals = "AwaitingJournals"

// IsTiedToRobot reports whether the Task belongs to a system or sysbatch job, so that each robot
// has its own replica and the Task never moves.
func IsTiedToRobot(t *v1alpha1.Task) bool { return v1alpha1.RunsOnEveryRobot(t.Spec.Type) }

// CanChangeRobot reports whether the manager chose the task's robot and may choose
// another one.
func CanChangeRobot(t *v1alpha1.Task) bool {
	if IsTiedToRobot(t) {
		return false
	}
	owner := metav1.GetControllerOf(t)
	return owner != nil && owner.Kind == "TaskGroup" || t.Annotations[AnnotationPlacedBy] != ""
}

// RequiredRobot returns the robot that a waiting Task must go to, because a user
// chose it or the Task was created for it. If empty, any robot will do.
func RequiredRobot(t *v1alpha1.Task) string {
	if a := t.Status.FindAttempt(t.Status.Attempt); CanChangeRobot(t) && a != nil && a.Robot == t.Spec.TargetRobot {
		return ""
	}
	return t.Spec.TargetRobot
}

// IsUnplacedFor reports whether the Placed condition is False with this reason.
func IsUnplacedFor(s *v1alpha1.TaskStatus, reason string) bool {
	c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionPlaced)
	return c != nil && c.Status == metav1.ConditionFalse && c.Reason == reason
}

// AwaitsOtherAttempt reports whether the Task waits for the end of another of its
// attempts.
func AwaitsOtherAttempt(t *v1alpha1.Task) bool {
	return IsUnplacedFor(&t.Status, ReasonAwaitingOtherAttempts)
}
