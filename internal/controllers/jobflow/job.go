package jobflow

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/jobflow/stepjob"
	"k8s4r.io/k8s4r/internal/lifecycle"
)

// podsJob is what a flow sees of a Job of pods.
func podsJob(j *batchv1.Job) *Job {
	return &Job{
		Kind: Pods, Name: j.Name, UID: j.UID, Deleting: j.DeletionTimestamp != nil,
		Phase: j.Status.State.Phase, Created: j.CreationTimestamp, Duration: j.Status.RunningDuration,
		Restarts: j.Status.RetryCount, Counts: j.Status.TaskStatusCount,
		Tasks: stepjob.TaskNames(&j.Spec),
	}
}

// RobotTasks is the name under which a flow counts the tasks of a robot Job, which
// counts those of all its groups as one.
const RobotTasks = "tasks"

// robotsJob is what a flow sees of a Job on robots, in the words of a vcjob (contract
// §4 row 3).
func robotsJob(j *robotv1.Job) *Job {
	out := &Job{
		Kind: Robots, Name: j.Name, UID: j.UID, Deleting: j.DeletionTimestamp != nil,
		Phase: robotPhases[lifecycle.JobState(j.Status.State)], Created: j.CreationTimestamp, Counts: robotCounts(&j.Status.TaskCounts),
	}
	if at := j.Status.CompletedAt; at != nil {
		out.Duration = &metav1.Duration{Duration: max(0, at.Sub(j.CreationTimestamp.Time))}
	}
	return out
}

// robotPhases are the phases of the states of a robot Job. The empty state of one that
// nobody has looked at is an empty phase, as it is with a vcjob.
var robotPhases = map[lifecycle.JobState]batchv1.JobPhase{
	lifecycle.JobUnderConstruction: batchv1.JobPending,
	lifecycle.JobPending:           batchv1.JobPending,
	lifecycle.JobPaused:            batchv1.JobPending,
	lifecycle.JobRequeueing:        batchv1.JobPending,
	lifecycle.JobRunning:           batchv1.JobRunning,
	lifecycle.JobPauseRequested:    batchv1.JobRunning,
	lifecycle.JobCancelRequested:   batchv1.JobRunning,
	lifecycle.JobCompleted:         batchv1.JobCompleted,
	lifecycle.JobFailed:            batchv1.JobFailed,
	lifecycle.JobCanceled:          batchv1.JobFailed,
}

func robotCounts(c *robotv1.TaskCounts) map[string]batchv1.TaskState {
	count := map[corev1.PodPhase]int32{
		corev1.PodPending:   c.PendingTasks + c.DispatchingTasks + c.ExitedTasks + c.SoftFailedTasks + c.PausedTasks,
		corev1.PodRunning:   c.RunningTasks,
		corev1.PodUnknown:   c.UnknownTasks,
		corev1.PodSucceeded: c.SucceededTasks,
		corev1.PodFailed:    c.FailedTasks + c.CanceledTasks,
	}
	for phase, n := range count {
		if n == 0 {
			delete(count, phase)
		}
	}
	if len(count) == 0 {
		return nil
	}
	return map[string]batchv1.TaskState{RobotTasks: {Phase: count}}
}
