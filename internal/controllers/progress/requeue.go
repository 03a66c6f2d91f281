package progress

import (
	"slices"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/lifecycle"
)

// Starts tells whether tasks of the job may be placed and started: its state
// says so, and nobody wishes otherwise.
func Starts(j *v1alpha1.Job) bool {
	wish := j.Spec.DesiredState
	return lifecycle.JobState(j.Status.State).Starts() && (wish == "" || wish == v1alpha1.DesiredRunning)
}

// Requeueing is the wish that the job's tasks are to follow now. Nil: none.
func Requeueing(j *v1alpha1.Job) *v1alpha1.RequeueStatus {
	if lifecycle.JobState(j.Status.State) != lifecycle.JobRequeueing {
		return nil
	}
	return j.Status.Requeue
}

// PutsBack tells whether a requeue puts a task in this state back
// (docs/spec/job.md). While a job is requeueing none of its tasks starts, so one
// that has followed does not match again.
func PutsBack(r *v1alpha1.RequeueStatus, task string, s lifecycle.TaskState) bool {
	waits := s == lifecycle.TaskPaused || s == lifecycle.TaskSoftFailed
	switch {
	case len(r.Tasks) > 0:
		return slices.Contains(r.Tasks, task) && (s.Terminal() || waits)
	case r.Scope == v1alpha1.RequeueFailed:
		return s == lifecycle.TaskFailed
	case s == lifecycle.TaskCompleted:
		return lifecycle.JobState(r.From) == lifecycle.JobCompleted
	}
	return s.Terminal() || waits
}
