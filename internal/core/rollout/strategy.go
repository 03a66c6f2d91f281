package rollout

import (
	"slices"
	"time"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/window"
)

// IsUsedBy reports whether Rollouts change the Tasks of a Job, instead of each change of its definition.
// False for nil. A batch Job has no revisions.
func IsUsedBy(j *v1alpha1.Job) bool {
	if j == nil || j.Spec.Update == nil || j.Spec.Update.Strategy != v1alpha1.UpdateRollout {
		return false
	}
	return j.Spec.Type != "" && j.Spec.Type != v1alpha1.JobTypeBatch
}

// IsUnfinished reports whether a Rollout may still change units that it has not reached.
func IsUnfinished(r *v1alpha1.Rollout) bool {
	switch r.Status.Phase {
	case v1alpha1.RolloutProgressing, v1alpha1.RolloutWaitingForApproval, v1alpha1.RolloutPausing, v1alpha1.RolloutPaused, v1alpha1.RolloutReverting:
		return true
	}
	return false
}

// IgnoresWindows reports whether a Rollout interrupts tasks also while the maintenance windows of their robots are
// closed: its spec requires it, or it returns units to the revision of before, which repairs them. False for nil.
func IgnoresWindows(r *v1alpha1.Rollout) bool {
	if r == nil {
		return false
	}
	isReverting := r.Status.Phase == v1alpha1.RolloutReverting || r.Status.Phase == v1alpha1.RolloutReverted
	return r.Spec.IgnoreWindows || isReverting
}

// IgnoresWindowsOf is IgnoresWindows for the robots of a namespace. Robots that another namespace shares keep their
// windows: the right to ignore windows is checked in the Rollout's namespace. False for nil.
func IgnoresWindowsOf(r *v1alpha1.Rollout, robotNamespace string) bool {
	return IgnoresWindows(r) && robotNamespace == r.Namespace
}

// ScopeOf returns what interruptions by a Rollout respect on the robots of a namespace. R may be nil.
func ScopeOf(r *v1alpha1.Rollout, robotNamespace string) window.Scope {
	if IgnoresWindowsOf(r, robotNamespace) {
		return window.HoldsOnly
	}
	return window.WindowsAndHolds
}

// DefaultDeadline is spec.deadline of a Rollout that sets none.
const DefaultDeadline = 10 * time.Minute

// Deadline returns how long a unit may take until it is healthy with the new revision.
func Deadline(r *v1alpha1.Rollout) time.Duration {
	if d := r.Spec.Deadline.Value(); d > 0 {
		return d
	}
	return DefaultDeadline
}

// MinHealthyTime is update.minHealthyTime of a group that sets none, and of agents.
const MinHealthyTime = 10 * time.Second

// HealthyTime returns how long the Tasks of a group must run until they are healthy in a wave.
func HealthyTime(j *v1alpha1.Job, group string, w *v1alpha1.RolloutWave) time.Duration {
	needs := MinHealthyTime
	for i := range j.Spec.TaskGroups {
		if g := &j.Spec.TaskGroups[i]; g.Name == group && g.Update != nil && g.Update.MinHealthyTime != nil {
			needs = g.Update.MinHealthyTime.Value()
		}
	}
	return max(needs, w.HealthyFor.Value())
}

// HasSameDecisions reports whether two versions of a Rollout change the same units in the same way. Counts
// and other progress do not matter. Each may be nil.
func HasSameDecisions(a, b *v1alpha1.Rollout) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.UID == b.UID && a.Generation == b.Generation &&
		a.Status.Phase == b.Status.Phase && a.Status.Revision == b.Status.Revision && a.Status.Version == b.Status.Version && slices.EqualFunc(a.Status.Waves, b.Status.Waves, isSameWave)
}

func isSameWave(a, b v1alpha1.RolloutWaveStatus) bool {
	return a.Name == b.Name && a.Bound == b.Bound && a.AdmittedBound == b.AdmittedBound &&
		(a.FinishedAt == nil) == (b.FinishedAt == nil) && a.Retries == b.Retries && a.RetriedAt.Equal(b.RetriedAt)
}
