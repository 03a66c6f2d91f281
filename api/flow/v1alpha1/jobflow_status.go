package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batchv1alpha1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
)

// Phase of a flow.
//
// +kubebuilder:validation:Enum=Succeed;Terminating;Failed;Running;Pending
type Phase string

// The phases of a flow. Their transitions are in internal/core/lifecycle.
const (
	Pending     Phase = "Pending"
	Running     Phase = "Running"
	Succeed     Phase = "Succeed"
	Failed      Phase = "Failed"
	Terminating Phase = "Terminating"
)

// The types of status.flowConditions.
const (
	// ConditionValid is False, with a message, while the flow cannot run as specified.
	ConditionValid = "Valid"
	// ConditionComplete is True once the flow has succeeded.
	ConditionComplete = "Complete"
	// ConditionArchived reports, if the manager has an archive, whether the end of the flow and
	// of its Jobs is recorded in it. Written by the archive controller.
	ConditionArchived = "Archived"
	// ConditionFailed is True once the flow has failed.
	ConditionFailed = "Failed"
	// ConditionSuspended is True while no more steps are started.
	ConditionSuspended = "Suspended"
)

// JobFlowStatus is the observed state of a flow. Only the jobflow controller writes it. The
// fields up to state are Volcano's; the state of a robot Job is shown there as the corresponding
// phase of a pod job.
type JobFlowStatus struct {
	// PendingJobs are the names of the pending Jobs.
	// +optional
	PendingJobs []string `json:"pendingJobs,omitempty"`
	// RunningJobs are the names of the running Jobs.
	// +optional
	RunningJobs []string `json:"runningJobs,omitempty"`
	// FailedJobs are the names of the failed Jobs.
	// +optional
	FailedJobs []string `json:"failedJobs,omitempty"`
	// CompletedJobs are the names of the completed Jobs, including those that were deleted since.
	// +optional
	CompletedJobs []string `json:"completedJobs,omitempty"`
	// TerminatedJobs are the names of the terminated Jobs.
	// +optional
	TerminatedJobs []string `json:"terminatedJobs,omitempty"`
	// UnKnowJobs are the names of the Jobs in any other phase except Completing and Terminating.
	// +optional
	UnKnowJobs []string `json:"unKnowJobs,omitempty"`
	// JobStatusList has the history of each Job.
	// +optional
	JobStatusList []JobStatus `json:"jobStatusList,omitempty"`
	// Conditions has the phase of each Job, by its name. The conditions of the flow are in
	// flowConditions. The API server treats the map as one value.
	// +optional
	// +mapType=atomic
	Conditions map[string]Condition `json:"conditions,omitempty"`
	// State of the flow.
	// +optional
	State State `json:"state,omitempty"`

	// ObservedGeneration is the metadata.generation that this status is based on.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// StartTime is the time at which the first step started.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`
	// CompletionTime is the time at which the flow succeeded or failed.
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`
	// FlowConditions are the conditions of the flow: Valid, Complete, Failed and Suspended, and
	// Archived if the manager has an archive.
	// +optional
	// +listType=map
	// +listMapKey=type
	FlowConditions []metav1.Condition `json:"flowConditions,omitempty"`
	// Retry is the generation of the last spec.retry that was applied.
	// +optional
	Retry int64 `json:"retry,omitempty"`
	// Steps has the state of the steps beyond that of their Jobs. Steps without such state are
	// omitted.
	// +optional
	// +listType=atomic
	Steps []StepStatus `json:"steps,omitempty"`
}

// State is a phase.
type State struct {
	// Phase of the flow.
	// +optional
	Phase Phase `json:"phase,omitempty"`
}

// JobStatus is the history of one Job.
type JobStatus struct {
	// Name of the Job.
	// +optional
	Name string `json:"name,omitempty"`
	// UID of the Job. It distinguishes the Job from an earlier one with the same name. An
	// addition to Volcano's.
	// +optional
	UID string `json:"uid,omitempty"`
	// State is the phase of the Job.
	// +optional
	State batchv1alpha1.JobPhase `json:"state,omitempty"`
	// StartTimestamp is the time at which it was created.
	// +optional
	StartTimestamp metav1.Time `json:"startTimestamp,omitempty"`
	// EndTimestamp is the time at which it ended.
	// +optional
	EndTimestamp metav1.Time `json:"endTimestamp,omitempty"`
	// RestartCount is the number of its restarts.
	// +optional
	// +kubebuilder:validation:Minimum=0
	RestartCount int32 `json:"restartCount,omitempty"`
	// RunningHistories are the phases that it has been in, the newest last.
	// +optional
	RunningHistories []JobRunningHistory `json:"runningHistories,omitempty"`
}

// JobRunningHistory is a time span in which a Job was in one phase.
type JobRunningHistory struct {
	// StartTimestamp is the time at which the phase began.
	// +optional
	StartTimestamp metav1.Time `json:"startTimestamp,omitempty"`
	// EndTimestamp is the time at which the phase ended. Not set while it lasts.
	// +optional
	EndTimestamp metav1.Time `json:"endTimestamp,omitempty"`
	// State is the phase.
	// +optional
	State batchv1alpha1.JobPhase `json:"state,omitempty"`
}

// Condition is the state of one Job.
type Condition struct {
	// Phase of the Job.
	// +optional
	Phase batchv1alpha1.JobPhase `json:"phase,omitempty"`
	// CreateTimestamp is the time at which it was created.
	// +optional
	CreateTimestamp metav1.Time `json:"createTime,omitempty"`
	// RunningDuration is the time from its creation to its end.
	// +optional
	RunningDuration *metav1.Duration `json:"runningDuration,omitempty"`
	// TaskStatusCount counts the Pods, or the robot tasks, of each of its tasks.
	// +optional
	TaskStatusCount map[string]batchv1alpha1.TaskState `json:"taskStatusCount,omitempty"`
}

// StepStatus is the state of a step beyond that of its Job.
type StepStatus struct {
	// Name of the step.
	Name string `json:"name"`
	// Reason is a CamelCase word for programs that explains why the step waits, was skipped or
	// has failed, such as TemplateNotFound.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Message explains the reason to people.
	// +optional
	Message string `json:"message,omitempty"`
	// Skipped is true if the step was skipped because its when was false.
	// +optional
	Skipped bool `json:"skipped,omitempty"`
	// Retries is the number of times the step was run again.
	// +optional
	Retries int32 `json:"retries,omitempty"`
	// NextRetryTime is the time at which the step runs again.
	// +optional
	NextRetryTime *metav1.Time `json:"nextRetryTime,omitempty"`
	// JobUID is the UID of the step's Job. Another Job with the same name is not used, and a
	// deleted one is not created again.
	// +optional
	JobUID string `json:"jobUID,omitempty"`
	// RetiredUID is the UID of the Job of an earlier run that is being deleted. The step runs
	// again when it is gone.
	// +optional
	RetiredUID string `json:"retiredUID,omitempty"`
	// Outputs that its tasks have written, for the steps that depend on it.
	// +optional
	Outputs map[string]string `json:"outputs,omitempty"`
}

// IsArchived reports whether the current end of the flow is in the archive. The end before a
// retry does not count.
func (s *JobFlowStatus) IsArchived() bool {
	c := meta.FindStatusCondition(s.FlowConditions, ConditionArchived)
	return c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration == s.ObservedGeneration
}

// IsJobRecorded reports whether the status has the end of the Job with this name and UID, so that
// the Job may be deleted. It is true for a Job that was replaced by a later run.
func (s *JobFlowStatus) IsJobRecorded(name, uid string) bool {
	for i := range s.Steps {
		if s.Steps[i].RetiredUID == uid {
			return true
		}
	}
	for i := range s.JobStatusList {
		if j := &s.JobStatusList[i]; j.Name == name {
			return HasEnded(j.State) && j.MatchesUID(uid)
		}
	}
	return false
}

// MatchesUID reports whether the entry belongs to the Job with this UID. An entry without a UID
// belongs to any Job with its name.
func (s *JobStatus) MatchesUID(uid string) bool { return s.UID == "" || s.UID == uid }

// HasEnded reports whether a Job in this phase has ended. An aborted Job has not,
// because it can be resumed.
func HasEnded(p batchv1alpha1.JobPhase) bool {
	return p == batchv1alpha1.JobCompleted || p == batchv1alpha1.JobFailed || p == batchv1alpha1.JobTerminated
}
