// Package progress adds tasks up to the status of what they belong to: a
// TaskGroup and a Job say the same about different numbers of tasks.
package progress

import (
	"fmt"
	"slices"
	"strings"
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
	// Reason for programs. Empty: that which goes with the state.
	Reason string
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

// marks are the conditions that are true in a state: Complete for a good end,
// Failed for any other, so that whoever waits for one of them is woken, and
// Suspended for a pause.
var marks = map[lifecycle.JobState]struct{ kind, reason string }{
	lifecycle.JobCompleted: {v1alpha1.ConditionComplete, "AllTasksEnded"},
	lifecycle.JobFailed:    {v1alpha1.ConditionFailed, "TooManyFailedTasks"},
	lifecycle.JobCanceled:  {v1alpha1.ConditionFailed, "Canceled"},
	lifecycle.JobPaused:    {v1alpha1.ConditionSuspended, "Paused"},
}

// ReasonDeadline is why a job failed that took longer than its activeDeadline.
const ReasonDeadline = "DeadlineExceeded"

// Mark sets the conditions that go with a state, and takes back those that went
// with the states before it.
func Mark(conditions *[]metav1.Condition, now time.Time, generation int64, c Change) {
	mark := marks[c.To]
	if c.Reason != "" {
		mark.reason = c.Reason
	}
	set := func(kind string, is metav1.ConditionStatus, reason string) {
		meta.SetStatusCondition(conditions, metav1.Condition{
			Type: kind, Status: is, Reason: reason, Message: c.Why,
			ObservedGeneration: generation, LastTransitionTime: metav1.NewTime(now),
		})
	}
	for _, old := range slices.Clone(*conditions) {
		known := old.Type == v1alpha1.ConditionComplete || old.Type == v1alpha1.ConditionFailed || old.Type == v1alpha1.ConditionSuspended
		if known && old.Type != mark.kind && old.Status == metav1.ConditionTrue {
			set(old.Type, metav1.ConditionFalse, Word(c.To))
		}
	}
	if mark.kind != "" {
		set(mark.kind, metav1.ConditionTrue, mark.reason)
	}
}

// Word is a state as the reason of a condition or an event: under-construction
// reads UnderConstruction.
func Word(s lifecycle.JobState) string {
	var b strings.Builder
	for part := range strings.SplitSeq(string(s), "-") {
		if part != "" {
			b.WriteString(strings.ToUpper(part[:1]) + part[1:])
		}
	}
	return b.String()
}

// Ended tells whether nothing will change any more: the state is terminal and
// so is every task.
func Ended(s lifecycle.JobState, c lifecycle.Counts) bool {
	return s.Terminal() && c.Terminal() == c.Total
}

// Started tells whether any task has started. One that is dispatching has not:
// its robot may not answer for long, and the job's activeDeadline would run.
func Started(c lifecycle.Counts) bool {
	return c.Sum(lifecycle.TaskRunning, lifecycle.TaskUnknown, lifecycle.TaskExited,
		lifecycle.TaskCompleted, lifecycle.TaskFailed, lifecycle.TaskSoftFailed) > 0
}
