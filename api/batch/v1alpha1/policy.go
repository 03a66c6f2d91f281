package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Event is something that happens to a Job, for which a policy may name an Action.
//
// +kubebuilder:validation:Enum=*;PodPending;PodRunning;PodFailed;PodEvicted;Unknown;TaskCompleted;TaskFailed;OutOfSync;CommandIssued;JobUpdated
type Event string

// The events of a Job.
const (
	// AnyEvent stands for each of those that a policy may name.
	AnyEvent Event = "*"
	// PodPendingEvent: a Pod has been pending for as long as the policy's timeout.
	PodPendingEvent Event = "PodPending"
	// PodRunningEvent: a Pod runs. Internal.
	PodRunningEvent Event = "PodRunning"
	// PodFailedEvent: a Pod has failed.
	PodFailedEvent Event = "PodFailed"
	// PodEvictedEvent: a Pod was deleted, and not by the Job.
	PodEvictedEvent Event = "PodEvicted"
	// JobUnknownEvent: some Pods of a gang run and others cannot. Only a gang
	// scheduler gives it.
	JobUnknownEvent Event = "Unknown"
	// TaskCompletedEvent: every replica of a task has succeeded.
	TaskCompletedEvent Event = "TaskCompleted"
	// TaskFailedEvent: the containers of a task's Pods were restarted as often as
	// its maxRetry allows.
	TaskFailedEvent Event = "TaskFailed"
	// OutOfSyncEvent: the Job or one of its Pods has changed. Internal.
	OutOfSyncEvent Event = "OutOfSync"
	// CommandIssuedEvent: a Command names the Job. Internal.
	CommandIssuedEvent Event = "CommandIssued"
	// JobUpdatedEvent: the Job was changed. Accepted, never raised.
	JobUpdatedEvent Event = "JobUpdated"
)

// Action is what to do with a Job.
//
// +kubebuilder:validation:Enum=AbortJob;RestartJob;RestartTask;RestartPod;RestartPartition;TerminateJob;CompleteJob;ResumeJob;SyncJob;EnqueueJob;SyncQueue;OpenQueue;CloseQueue
type Action string

// The actions on a Job.
const (
	// AbortJobAction stops all Pods; ResumeJobAction may start them again.
	AbortJobAction Action = "AbortJob"
	// RestartJobAction stops all Pods and starts anew.
	RestartJobAction Action = "RestartJob"
	// RestartTaskAction stops and starts the Pods of one task.
	RestartTaskAction Action = "RestartTask"
	// RestartPodAction stops and starts one Pod.
	RestartPodAction Action = "RestartPod"
	// RestartPartitionAction stops and starts the Pods of one partition of a task.
	RestartPartitionAction Action = "RestartPartition"
	// TerminateJobAction stops all Pods for good.
	TerminateJobAction Action = "TerminateJob"
	// CompleteJobAction stops all Pods and counts the Job as completed.
	CompleteJobAction Action = "CompleteJob"
	// ResumeJobAction starts an aborted Job again.
	ResumeJobAction Action = "ResumeJob"
	// SyncJobAction creates the Pods that are missing and counts the others.
	SyncJobAction Action = "SyncJob"
)

// LifecyclePolicy says what to do when something happens.
type LifecyclePolicy struct {
	// Action to take.
	// +optional
	Action Action `json:"action,omitempty"`
	// Event that leads to it. Either events or an exit code, not both.
	// +optional
	Event Event `json:"event,omitempty"`
	// Events that lead to it, beside the one in event.
	// +optional
	Events []Event `json:"events,omitempty"`
	// ExitCode of a Pod's first container that leads to it. Not 0.
	// +optional
	ExitCode *int32 `json:"exitCode,omitempty"`
	// Timeout delays the action. It is not taken if the Pod recovers meanwhile. Not
	// set: at once.
	// +optional
	Timeout *metav1.Duration `json:"timeout,omitempty"`
}
