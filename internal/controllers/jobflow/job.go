package jobflow

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/flow/stepjob"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
)

// summarizePodJob returns what a flow needs to know of a pod job.
func summarizePodJob(j *batchv1.Job) *Job {
	return &Job{
		Kind: Pods, Name: j.Name, UID: j.UID, Deleting: j.DeletionTimestamp != nil,
		Phase: j.Status.State.Phase, Created: j.CreationTimestamp, Duration: j.Status.RunningDuration,
		Restarts: j.Status.RetryCount, Counts: j.Status.TaskStatusCount,
		Tasks: stepjob.TaskNames(&j.Spec),
	}
}

// RobotTasks is the key of a robot Job's task counts in the flow's status. The counts
// cover all its groups.
const RobotTasks = "tasks"

// summarizeRobotJob returns what a flow needs to know of a robot Job, with the phases of a
// pod job.
func summarizeRobotJob(j *robotv1.Job) *Job {
	out := &Job{
		Kind: Robots, Name: j.Name, UID: j.UID, Deleting: j.DeletionTimestamp != nil,
		Phase: robotPhases[lifecycle.JobState(j.Status.State)], Created: j.CreationTimestamp, Counts: countRobotTasks(&j.Status.TaskCounts),
	}
	if at := j.Status.CompletedAt; at != nil {
		out.Duration = &metav1.Duration{Duration: max(0, at.Sub(j.CreationTimestamp.Time))}
	}
	return out
}

// robotPhases maps the states of a robot Job to phases of a pod job. A Job that was not
// reconciled yet has an empty state and an empty phase.
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

func countRobotTasks(c *robotv1.TaskCounts) map[string]batchv1.TaskState {
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
