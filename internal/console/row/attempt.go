package row

import (
	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	"k8s4r.io/k8s4r/internal/lifecycle"
)

// TaskTone is what a state of a task, or of one attempt of it, means.
func TaskTone(state string) Tone { return taskTone(lifecycle.TaskState(state).Normal()) }

// VCJobTone is what a phase of a job of Pods means. A flow tells of all its jobs in them.
func VCJobTone(phase string) Tone { return vcjobTone(batchv1.JobPhase(phase)) }
