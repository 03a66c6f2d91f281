package taskcounts

import (
	"slices"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
)

// CanStartTasks reports whether the state and the desired state of the job allow its tasks to
// be placed and started.
func CanStartTasks(j *v1alpha1.Job) bool {
	desired := j.Spec.DesiredState
	return lifecycle.JobState(j.Status.State).StartsTasks() && (desired == "" || desired == v1alpha1.DesiredRunning)
}

// AwaitsTasks reports whether the next state of the job depends on counts that its groups computed
// after all of their tasks had followed its current state: it is being paused or canceled, or has
// failed and is to be requeued.
func AwaitsTasks(j *v1alpha1.Job) bool {
	switch lifecycle.JobState(j.Status.State) {
	case lifecycle.JobPauseRequested, lifecycle.JobCancelRequested:
		return true
	case lifecycle.JobFailed:
		return IsRequeueRequested(j.Spec.Requeue, j.Status.Requeue)
	default:
		return false
	}
}

// IsRequeueRequested reports whether the requeue of a job's spec was not applied or rejected yet.
func IsRequeueRequested(wanted *v1alpha1.Requeue, applied *v1alpha1.RequeueStatus) bool {
	return wanted != nil && wanted.Generation != 0 && (applied == nil || wanted.Generation > applied.Generation)
}

// PendingRequeue returns the requeue of the job that the tasks of the group must still follow, or
// nil. The group is nil for a task without one.
//
// A group that has followed the requeue ignores it from then on, even while its job waits
// for other groups. Otherwise tasks that fail later would be requeued, too.
func PendingRequeue(j *v1alpha1.Job, g *v1alpha1.TaskGroup) *v1alpha1.RequeueStatus {
	r := j.Status.Requeue
	if lifecycle.JobState(j.Status.State) != lifecycle.JobRequeueing || r == nil {
		return nil
	}
	if g != nil && g.Status.ObservedRequeue >= r.Generation {
		return nil
	}
	return r
}

// RequeuesWholeJob reports whether a requeue includes all tasks, even those that were never
// created.
func RequeuesWholeJob(r *v1alpha1.RequeueStatus) bool {
	return len(r.Tasks) == 0 && r.Scope != v1alpha1.RequeueFailed
}

// ClearsFailures reports whether a requeue clears the blocklists and the failed robots of all
// tasks: it does unless it names tasks. Otherwise the failures of completed tasks would block the
// same robots again at once.
func ClearsFailures(r *v1alpha1.RequeueStatus) bool { return len(r.Tasks) == 0 }

// ClearsEnds reports whether the ranges of an array that a requeue includes forget which of their indexes
// have succeeded. Otherwise they keep it, as tasks that completed stay completed.
func ClearsEnds(r *v1alpha1.RequeueStatus) bool {
	return len(r.Tasks) > 0 || r.Scope != v1alpha1.RequeueFailed && lifecycle.JobState(r.FromState) == lifecycle.JobCompleted
}

// ShouldRequeue reports whether a requeue applies to a task in this state
// (docs/reference/kinds/job.md). While a job is requeueing, none of its tasks starts, so a
// requeued task does not match again.
func ShouldRequeue(r *v1alpha1.RequeueStatus, task string, s lifecycle.TaskState) bool {
	isWaiting := s == lifecycle.TaskPaused || s == lifecycle.TaskSoftFailed
	switch {
	case len(r.Tasks) > 0:
		return slices.Contains(r.Tasks, task) && (s.IsTerminal() || isWaiting)
	case r.Scope == v1alpha1.RequeueFailed:
		return s == lifecycle.TaskFailed
	case s == lifecycle.TaskCompleted:
		return lifecycle.JobState(r.FromState) == lifecycle.JobCompleted
	}
	return s.IsTerminal() || isWaiting
}
