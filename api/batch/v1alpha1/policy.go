package v1alpha1

// Event is an event of a Job that can trigger the action of a policy.
//
// +kubebuilder:validation:Enum=*;PodPending;PodRunning;PodFailed;PodEvicted;Unknown;TaskCompleted;TaskFailed;OutOfSync;CommandIssued;JobUpdated
type Event string

// The events of a Job.
const (
	// AnyEvent matches all events that a policy can name.
	AnyEvent Event = "*"
	// PodPendingEvent: a Pod has been pending for as long as the policy's timeout.
	PodPendingEvent Event = "PodPending"
	// PodRunningEvent: a Pod is running. Internal.
	PodRunningEvent Event = "PodRunning"
	// PodFailedEvent: a Pod has failed.
	PodFailedEvent Event = "PodFailed"
	// PodEvictedEvent: a Pod was deleted, but not by the controller.
	PodEvictedEvent Event = "PodEvicted"
	// JobUnknownEvent: some Pods of a gang are running and others cannot be placed. Only gang
	// schedulers raise it.
	JobUnknownEvent Event = "Unknown"
	// TaskCompletedEvent: every replica of a task has succeeded.
	TaskCompletedEvent Event = "TaskCompleted"
	// TaskFailedEvent: the containers of a task's Pods were restarted maxRetry times in total.
	TaskFailedEvent Event = "TaskFailed"
	// OutOfSyncEvent: the Job or one of its Pods has changed. Internal.
	OutOfSyncEvent Event = "OutOfSync"
	// CommandIssuedEvent: a Command names the Job. Internal.
	CommandIssuedEvent Event = "CommandIssued"
	// JobUpdatedEvent: the Job was changed. Accepted, but never raised.
	JobUpdatedEvent Event = "JobUpdated"
)

// Action is an action on a Job.
//
// +kubebuilder:validation:Enum=AbortJob;RestartJob;RestartTask;RestartPod;RestartPartition;TerminateJob;CompleteJob;ResumeJob;SyncJob;EnqueueJob;SyncQueue;OpenQueue;CloseQueue
type Action string

// The actions on a Job.
const (
	// AbortJobAction stops all Pods. ResumeJobAction starts them again.
	AbortJobAction Action = "AbortJob"
	// RestartJobAction stops all Pods and starts them again.
	RestartJobAction Action = "RestartJob"
	// RestartTaskAction restarts the Pods of one task.
	RestartTaskAction Action = "RestartTask"
	// RestartPodAction restarts one Pod.
	RestartPodAction Action = "RestartPod"
	// RestartPartitionAction restarts the Pods of one partition of a task.
	RestartPartitionAction Action = "RestartPartition"
	// TerminateJobAction stops all Pods. The Job cannot be resumed.
	TerminateJobAction Action = "TerminateJob"
	// CompleteJobAction stops all Pods and completes the Job.
	CompleteJobAction Action = "CompleteJob"
	// ResumeJobAction starts an aborted Job again.
	ResumeJobAction Action = "ResumeJob"
	// SyncJobAction creates missing Pods and updates the status.
	SyncJobAction Action = "SyncJob"
)

// LifecyclePolicy defines an action and the events that trigger it.
type LifecyclePolicy struct {
	// Action to take.
	// +optional
	Action Action `json:"action,omitempty"`
	// Event that triggers the action. Events and exitCode cannot be combined.
	// +optional
	Event Event `json:"event,omitempty"`
	// Events that trigger the action, in addition to event.
	// +optional
	Events []Event `json:"events,omitempty"`
	// ExitCode of a Pod's first container that triggers the action. It must not be 0.
	// +optional
	// +kubebuilder:validation:Minimum=-2147483648
	// +kubebuilder:validation:Maximum=2147483647
	ExitCode *int32 `json:"exitCode,omitempty"`
	// Timeout delays the action. If the Pod recovers within that time, the action is not
	// executed. If not set, there is no delay.
	// +optional
	Timeout *Duration `json:"timeout,omitempty"`
}
