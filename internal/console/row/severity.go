package row

import (
	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
)

// TaskSeverity returns the severity of a state of a task or an attempt.
func TaskSeverity(state string) Severity { return taskSeverity(lifecycle.TaskState(state).OrPending()) }

// VCJobSeverity returns the severity of a vcjob's phase. A flow reports the state of all its jobs as
// such phases.
func VCJobSeverity(phase string) Severity { return vcjobSeverity(batchv1.JobPhase(phase)) }
