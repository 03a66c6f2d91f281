// Package progress adds tasks up to the status of what they belong to: a
// TaskGroup and a Job say the same about different numbers of tasks.
package progress

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/lifecycle"
)

// Change is a state and why it came.
type Change struct {
	To  lifecycle.JobState
	Why string
}

// Advance follows the table from a state until nothing changes any more, and
// returns each change.
func Advance(from lifecycle.JobState, c lifecycle.Counts, maxFailedPercent int) []Change {
	var changes []Change
	for {
		to, why := lifecycle.JobAfterTasks(from, c, maxFailedPercent)
		if to == from {
			return changes
		}
		changes = append(changes, Change{to, why})
		from = to
	}
}

// Describe is the statusDescription of a change.
func (c Change) Describe() string { return fmt.Sprintf("Changed to status %q: %s", c.To, c.Why) }

// MaxFailedPercent is what the job allows.
func MaxFailedPercent(j *v1alpha1.Job) int {
	if p := j.Spec.FailurePolicy; p != nil && p.MaxFailedPercent != nil {
		return int(*p.MaxFailedPercent)
	}
	return lifecycle.DefaultMaxFailedPercent
}

// Write puts counts into their fields.
func Write(c lifecycle.Counts) v1alpha1.TaskCounts {
	n := func(states ...lifecycle.TaskState) int32 { return int32(c.Sum(states...)) }
	out := v1alpha1.TaskCounts{
		TotalTasks:       int32(c.Total),
		DispatchingTasks: n(lifecycle.TaskDispatching),
		RunningTasks:     n(lifecycle.TaskRunning),
		UnknownTasks:     n(lifecycle.TaskUnknown),
		ExitedTasks:      n(lifecycle.TaskExited),
		SoftFailedTasks:  n(lifecycle.TaskSoftFailed),
		PausedTasks:      n(lifecycle.TaskPaused),
		SucceededTasks:   n(lifecycle.TaskCompleted),
		FailedTasks:      n(lifecycle.TaskFailed),
		CanceledTasks:    n(lifecycle.TaskCanceled),
	}
	out.PendingTasks = int32(c.Pending()) - out.SoftFailedTasks
	return out
}

// AddTo adds what the fields say to counts. PendingTasks are in no other
// state, so Total alone carries them.
func AddTo(c *lifecycle.Counts, t v1alpha1.TaskCounts) {
	c.Total += int(t.TotalTasks)
	for state, n := range map[lifecycle.TaskState]int32{
		lifecycle.TaskDispatching: t.DispatchingTasks,
		lifecycle.TaskRunning:     t.RunningTasks,
		lifecycle.TaskUnknown:     t.UnknownTasks,
		lifecycle.TaskExited:      t.ExitedTasks,
		lifecycle.TaskSoftFailed:  t.SoftFailedTasks,
		lifecycle.TaskPaused:      t.PausedTasks,
		lifecycle.TaskCompleted:   t.SucceededTasks,
		lifecycle.TaskFailed:      t.FailedTasks,
		lifecycle.TaskCanceled:    t.CanceledTasks,
	} {
		c.AddN(state, int(n))
	}
}

// Mark sets the conditions that go with a state: Complete for a good end,
// Failed for any other, so that whoever waits for one of them is woken.
func Mark(conditions *[]metav1.Condition, now time.Time, generation int64, s lifecycle.JobState, why string) {
	var kind, reason string
	switch s {
	case lifecycle.JobCompleted:
		kind, reason = v1alpha1.ConditionComplete, "AllTasksEnded"
	case lifecycle.JobFailed:
		kind, reason = v1alpha1.ConditionFailed, "TooManyFailedTasks"
	case lifecycle.JobCanceled:
		kind, reason = v1alpha1.ConditionFailed, "Canceled"
	default:
		return
	}
	meta.SetStatusCondition(conditions, metav1.Condition{
		Type: kind, Status: metav1.ConditionTrue, Reason: reason, Message: why,
		ObservedGeneration: generation, LastTransitionTime: metav1.NewTime(now),
	})
}

// Ended tells whether nothing will change any more: the state is terminal and
// so is every task.
func Ended(s lifecycle.JobState, c lifecycle.Counts) bool {
	return s.Terminal() && c.Terminal() == c.Total
}

// Started tells whether any task has been on a robot.
func Started(c lifecycle.Counts) bool {
	return c.Active()+c.Sum(lifecycle.TaskCompleted, lifecycle.TaskFailed, lifecycle.TaskSoftFailed) > 0
}
