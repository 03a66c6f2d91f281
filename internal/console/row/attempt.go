package row

import (
	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
)

// TaskTone returns the severity of a state of a task or an attempt.
func TaskTone(state string) Tone { return taskTone(lifecycle.TaskState(state).OrPending()) }

// VCJobTone returns the severity of a vcjob's phase. A flow reports the state of all its jobs as
// such phases.
func VCJobTone(phase string) Tone { return vcjobTone(batchv1.JobPhase(phase)) }
