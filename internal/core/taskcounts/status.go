// Package taskcounts converts counts of task states to the status fields, conditions and
// messages that TaskGroups and Jobs share, and holds the rules of a requeue.
package taskcounts

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/rollout"
)

// Change is a change of the state of a Job or TaskGroup.
type Change struct {
	// To is the new state.
	To lifecycle.JobState
	// Why is the message of the condition and the event.
	Why string
	// Reason is the reason of the condition. If empty, it follows from the state.
	Reason string
}

// StatusDescription returns the text for status.statusDescription.
func (c Change) StatusDescription() string {
	return fmt.Sprintf("Changed to status %q: %s", c.To, c.Why)
}

// MaxFailedPercent returns spec.failurePolicy.maxFailedPercent or its default.
func MaxFailedPercent(j *v1alpha1.Job) int {
	if p := j.Spec.FailurePolicy; p != nil && p.MaxFailedPercent != nil {
		return int(*p.MaxFailedPercent)
	}
	if rollout.IsUsedBy(j) {
		return neverPercent
	}
	return lifecycle.DefaultMaxFailedPercent
}

// neverPercent is a share that failed tasks never reach. With the strategy Rollout a bad revision must not end
// the job before its Rollout is aborted and reverted.
const neverPercent = 101

// defaultBlocklistAfter is the default of failurePolicy.blocklistAfter (docs/reference/kinds/job.md).
const defaultBlocklistAfter = 3

// BlocklistAfter returns spec.failurePolicy.blocklistAfter or its default.
func BlocklistAfter(j *v1alpha1.Job) int {
	if p := j.Spec.FailurePolicy; p != nil && p.BlocklistAfter != nil {
		return int(*p.BlocklistAfter)
	}
	return defaultBlocklistAfter
}

// ToStatus converts counts to the fields of the status.
func ToStatus(c lifecycle.Counts) v1alpha1.TaskCounts {
	n := func(states ...lifecycle.TaskState) int32 { return saturate(c.SumOf(states...)) }
	out := v1alpha1.TaskCounts{
		TotalTasks:       saturate(c.Total),
		DispatchingTasks: n(lifecycle.TaskDispatching),
		RunningTasks:     n(lifecycle.TaskRunning),
		UnknownTasks:     n(lifecycle.TaskUnknown),
		ExitedTasks:      n(lifecycle.TaskExited),
		SoftFailedTasks:  n(lifecycle.TaskSoftFailed),
		PausedTasks:      n(lifecycle.TaskPaused),
		SucceededTasks:   n(lifecycle.TaskCompleted),
		FailedTasks:      n(lifecycle.TaskFailed),
		CanceledTasks:    n(lifecycle.TaskCanceled),
		UnconfirmedStops: saturate(c.UnconfirmedStops),
	}
	out.PendingTasks = saturate(c.PendingCount()) - out.SoftFailedTasks
	return out
}

// saturate returns n, or the largest number that a status can hold.
func saturate(n int) int32 { return int32(min(n, math.MaxInt32)) }

// AddTo adds the fields of a status to counts. PendingTasks are included in Total only.
func AddTo(c *lifecycle.Counts, t v1alpha1.TaskCounts) {
	c.Total += int(t.TotalTasks)
	c.UnconfirmedStops += int(t.UnconfirmedStops)
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
		c.AddTasks(state, int(n))
	}
}

// stateConditions maps states to the condition that is true in them. Every ended job is either
// Complete or Failed, so that clients can wait for its end.
var stateConditions = map[lifecycle.JobState]struct{ kind, reason string }{
	lifecycle.JobCompleted: {v1alpha1.ConditionComplete, "AllTasksEnded"},
	lifecycle.JobFailed:    {v1alpha1.ConditionFailed, ReasonTooManyFailedTasks},
	lifecycle.JobCanceled:  {v1alpha1.ConditionFailed, "Canceled"},
	lifecycle.JobPaused:    {v1alpha1.ConditionSuspended, "Paused"},
}

// Reasons of the condition Failed.
const (
	// ReasonDeadline is the reason of a job that exceeded its activeDeadline.
	ReasonDeadline = "DeadlineExceeded"
	// ReasonTooManyFailedTasks is the reason of a job or task group of which more tasks failed
	// than failurePolicy.maxFailedPercent allows.
	ReasonTooManyFailedTasks = "TooManyFailedTasks"
)

// SetConditions sets the condition of the new state to true and those of other states to
// false.
func SetConditions(conditions *[]metav1.Condition, now time.Time, generation int64, c Change) {
	mark := stateConditions[c.To]
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
			set(old.Type, metav1.ConditionFalse, StateReason(c.To))
		}
	}
	if mark.kind != "" {
		set(mark.kind, metav1.ConditionTrue, mark.reason)
	}
}

// StateReason returns a state as the reason of a condition or an event, such as
// UnderConstruction for under-construction.
func StateReason(s lifecycle.JobState) string {
	var b strings.Builder
	for part := range strings.SplitSeq(string(s), "-") {
		if part != "" {
			b.WriteString(strings.ToUpper(part[:1]) + part[1:])
		}
	}
	return b.String()
}

// HasEnded reports whether the state and the states of all tasks are terminal.
func HasEnded(s lifecycle.JobState, c lifecycle.Counts) bool {
	return s.IsTerminal() && c.TerminalCount() == c.Total
}

// HasStarted reports whether any task has started. A dispatching task has not: otherwise the
// job's activeDeadline would run while its robot is unresponsive.
func HasStarted(c lifecycle.Counts) bool {
	return c.SumOf(lifecycle.TaskRunning, lifecycle.TaskUnknown, lifecycle.TaskExited,
		lifecycle.TaskCompleted, lifecycle.TaskFailed, lifecycle.TaskSoftFailed) > 0
}
