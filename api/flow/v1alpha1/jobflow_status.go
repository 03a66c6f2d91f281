package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batchv1alpha1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
)

// Phase is where a flow stands.
//
// +kubebuilder:validation:Enum=Succeed;Terminating;Failed;Running;Pending
type Phase string

// The phases of a flow. The rules between them stand in internal/lifecycle.
const (
	Pending     Phase = "Pending"
	Running     Phase = "Running"
	Succeed     Phase = "Succeed"
	Failed      Phase = "Failed"
	Terminating Phase = "Terminating"
)

// The types of status.flowConditions.
const (
	// ConditionValid is False with a sentence while the flow cannot run as it is
	// written.
	ConditionValid = "Valid"
	// ConditionComplete is True once the flow has succeeded.
	ConditionComplete = "Complete"
	// ConditionArchived tells, where the manager keeps an archive, whether the end of
	// the flow and of its Jobs is in it. Written by the archive controller.
	ConditionArchived = "Archived"
	// ConditionFailed is True once the flow has failed.
	ConditionFailed = "Failed"
	// ConditionSuspended is True while nothing more is started.
	ConditionSuspended = "Suspended"
)

// JobFlowStatus is written by the jobflow controller alone. The fields up to state
// are Volcano's; for a robot Job they speak of it in the words of a vcjob.
type JobFlowStatus struct {
	// PendingJobs are the names of the Jobs that wait.
	// +optional
	PendingJobs []string `json:"pendingJobs,omitempty"`
	// RunningJobs are the names of the Jobs that run.
	// +optional
	RunningJobs []string `json:"runningJobs,omitempty"`
	// FailedJobs are the names of the Jobs that have failed.
	// +optional
	FailedJobs []string `json:"failedJobs,omitempty"`
	// CompletedJobs are the names of the Jobs that have completed, also of those
	// that were deleted since.
	// +optional
	CompletedJobs []string `json:"completedJobs,omitempty"`
	// TerminatedJobs are the names of the Jobs that were terminated.
	// +optional
	TerminatedJobs []string `json:"terminatedJobs,omitempty"`
	// UnKnowJobs are the names of the Jobs in any other phase but Completing and
	// Terminating.
	// +optional
	UnKnowJobs []string `json:"unKnowJobs,omitempty"`
	// JobStatusList has what became of each Job.
	// +optional
	JobStatusList []JobStatus `json:"jobStatusList,omitempty"`
	// Conditions has where each Job stands, by its name. Those of the flow are in
	// flowConditions. It is one value to the API server, which would else note the
	// owner of each field in it.
	// +optional
	// +mapType=atomic
	Conditions map[string]Condition `json:"conditions,omitempty"`
	// State is where the flow stands.
	// +optional
	State State `json:"state,omitempty"`

	// ObservedGeneration is the metadata.generation that the status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// StartTime is when the first step started.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`
	// CompletionTime is when the flow ended, well or badly.
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`
	// FlowConditions are Valid, Complete, Failed and Suspended.
	// +optional
	// +listType=map
	// +listMapKey=type
	FlowConditions []metav1.Condition `json:"flowConditions,omitempty"`
	// Retry is the generation of spec.retry that has been carried out.
	// +optional
	Retry int64 `json:"retry,omitempty"`
	// Steps has what is known of each step beyond its Job. A step of which there is
	// nothing to say is left out.
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

// JobStatus is what became of one Job.
type JobStatus struct {
	// Name of the Job.
	// +optional
	Name string `json:"name,omitempty"`
	// UID of the Job, so that the end of an earlier one of the name is not taken for
	// its own. An addition to Volcano's.
	// +optional
	UID string `json:"uid,omitempty"`
	// State that it is in.
	// +optional
	State batchv1alpha1.JobPhase `json:"state,omitempty"`
	// StartTimestamp is when it was created.
	// +optional
	StartTimestamp metav1.Time `json:"startTimestamp,omitempty"`
	// EndTimestamp is when it ended.
	// +optional
	EndTimestamp metav1.Time `json:"endTimestamp,omitempty"`
	// RestartCount is how often it was restarted.
	// +optional
	// +kubebuilder:validation:Minimum=0
	RestartCount int32 `json:"restartCount,omitempty"`
	// RunningHistories are the states that it has been in, the newest last.
	// +optional
	RunningHistories []JobRunningHistory `json:"runningHistories,omitempty"`
}

// JobRunningHistory is a time that a Job was in one state.
type JobRunningHistory struct {
	// StartTimestamp is when it came to the state.
	// +optional
	StartTimestamp metav1.Time `json:"startTimestamp,omitempty"`
	// EndTimestamp is when it left it. Not set: it has not.
	// +optional
	EndTimestamp metav1.Time `json:"endTimestamp,omitempty"`
	// State that it was in.
	// +optional
	State batchv1alpha1.JobPhase `json:"state,omitempty"`
}

// Condition is where one Job stands.
type Condition struct {
	// Phase of the Job.
	// +optional
	Phase batchv1alpha1.JobPhase `json:"phase,omitempty"`
	// CreateTimestamp is when it was created.
	// +optional
	CreateTimestamp metav1.Time `json:"createTime,omitempty"`
	// RunningDuration is the time from its creation to its end.
	// +optional
	RunningDuration *metav1.Duration `json:"runningDuration,omitempty"`
	// TaskStatusCount counts the Pods, or the robot tasks, of each of its tasks.
	// +optional
	TaskStatusCount map[string]batchv1alpha1.TaskState `json:"taskStatusCount,omitempty"`
}

// StepStatus is what is known of a step beyond its Job.
type StepStatus struct {
	// Name of the step.
	Name string `json:"name"`
	// Reason in one word why the step waits, was skipped or has failed, such as
	// TemplateNotFound.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Message for people.
	// +optional
	Message string `json:"message,omitempty"`
	// Skipped: when was false.
	// +optional
	Skipped bool `json:"skipped,omitempty"`
	// Retries is how often the step was run again.
	// +optional
	Retries int32 `json:"retries,omitempty"`
	// NextRetryTime is when it is run again.
	// +optional
	NextRetryTime *metav1.Time `json:"nextRetryTime,omitempty"`
	// JobUID is the UID of its Job, so that another of the same name is not taken
	// for it, and one that is gone is not made again.
	// +optional
	JobUID string `json:"jobUID,omitempty"`
	// RetiredUID is the UID of the Job of an earlier run. It is deleted, and the step
	// runs again once it is gone.
	// +optional
	RetiredUID string `json:"retiredUID,omitempty"`
	// Outputs that its tasks have written, for those that depend on it.
	// +optional
	Outputs map[string]string `json:"outputs,omitempty"`
}

// Archived tells whether the end that the status tells of is in the archive. That of an
// earlier run, before a retry, does not count.
func (s *JobFlowStatus) Archived() bool {
	c := meta.FindStatusCondition(s.FlowConditions, ConditionArchived)
	return c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration == s.ObservedGeneration
}

// Recorded tells whether the status holds the end of the Job, so that the flow loses
// nothing when the Job goes. Of a Job that another has taken the place of there is
// nothing to hold. The end of an earlier Job of the name is not its own.
func (s *JobFlowStatus) Recorded(name, uid string) bool {
	for i := range s.Steps {
		if s.Steps[i].RetiredUID == uid {
			return true
		}
	}
	for i := range s.JobStatusList {
		if j := &s.JobStatusList[i]; j.Name == name {
			return Ended(j.State) && j.Is(uid)
		}
	}
	return false
}

// Is tells whether the entry is of the Job. One whose UID was not kept is by its name.
func (s *JobStatus) Is(uid string) bool { return s.UID == "" || s.UID == uid }

// Ended tells whether a Job in this phase does nothing more. One that was aborted may
// be resumed.
func Ended(p batchv1alpha1.JobPhase) bool {
	return p == batchv1alpha1.JobCompleted || p == batchv1alpha1.JobFailed || p == batchv1alpha1.JobTerminated
}
