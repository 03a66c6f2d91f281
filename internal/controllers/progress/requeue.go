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

// Requeueing is the wish of the job that the tasks of the group are to follow
// now. Nil: none. A nil group is that of a task without one.
//
// A group that has followed is done with it, although its job waits for others:
// a task that failed only then would be put back when the group, and soon the
// job, may have ended.
func Requeueing(j *v1alpha1.Job, g *v1alpha1.TaskGroup) *v1alpha1.RequeueStatus {
	r := j.Status.Requeue
	if lifecycle.JobState(j.Status.State) != lifecycle.JobRequeueing || r == nil {
		return nil
	}
	if g != nil && g.Status.ObservedRequeue >= r.Generation {
		return nil
	}
	return r
}

// OfAll tells whether a requeue is of the whole job, with what was never created.
func OfAll(r *v1alpha1.RequeueStatus) bool {
	return len(r.Tasks) == 0 && r.Scope != v1alpha1.RequeueFailed
}

// Forgives tells whether a requeue clears the failure lists of all tasks and the
// blocklists, and not only the lists of the tasks that it names. A list that
// stayed, of a task that completed elsewhere, would block its robots again at
// once.
func Forgives(r *v1alpha1.RequeueStatus) bool { return len(r.Tasks) == 0 }

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
