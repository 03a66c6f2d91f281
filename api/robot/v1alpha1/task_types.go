package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Task is one program that runs on one robot. A group's replicas are made of
// Tasks; a Task may also be created by hand.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=tasks,singular=task,shortName=rtask,categories=k8s4r
// +kubebuilder:printcolumn:name="Job",type=string,JSONPath=`.spec.jobName`
// +kubebuilder:printcolumn:name="Robot",type=string,JSONPath=`.spec.targetRobot`
// +kubebuilder:printcolumn:name="Driver",type=string,JSONPath=`.spec.driver`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="ExitCode",type=integer,JSONPath=`.status.exitCode`
// +kubebuilder:printcolumn:name="Restarts",type=integer,JSONPath=`.status.restartCount`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Attempt",type=integer,JSONPath=`.status.attempt`,priority=1
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.reason`,priority=1
type Task struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what to run, and on which robot.
	Spec TaskSpec `json:"spec"`
	// Status is what has come of it.
	// +optional
	Status TaskStatus `json:"status,omitempty"`
}

// TaskList is a list of Tasks.
//
// +kubebuilder:object:root=true
type TaskList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Task `json:"items"`
}

// TaskSpec is what to run, and on which robot.
type TaskSpec struct {
	// JobName is the Job that the task belongs to. Empty: it was created by
	// hand.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	JobName string `json:"jobName,omitempty"`
	// TaskGroupName is the name of the TaskGroup object that the task belongs
	// to.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	TaskGroupName string `json:"taskGroupName,omitempty"`

	// Type of the task, mostly that of its Job: batch runs to the end, service and
	// system are kept running. Empty reads as batch. sysbatch is an init task of a
	// system job: it runs to the end, on its robot and on no other.
	// +optional
	// +kubebuilder:validation:Enum="";batch;service;system;sysbatch
	Type string `json:"type,omitempty"`

	TaskDefinition `json:",inline"`

	// Meta is what the Job and its group say of themselves, the group's before the
	// Job's: templates and names in the task's definition can stand for it.
	// +optional
	// +kubebuilder:validation:MaxProperties=128
	Meta map[string]string `json:"meta,omitempty"`

	// TargetRobot is the robot that runs the task. The manager fills it in;
	// whoever sets it on creation has chosen the robot.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$`
	TargetRobot string `json:"targetRobot,omitempty"`

	// StopOnRobotAfter makes the robot stop the task that long after it has lost
	// contact: disconnect.stopOnRobotAfter of the Job. Empty: it runs on.
	// +optional
	StopOnRobotAfter *Duration `json:"stopOnRobotAfter,omitempty"`

	// Holds is set for an init task that the others of its replica wait for, and for
	// no other task: the room that it takes on its robot beside what those hold
	// there already, of which it has the use before them.
	// +optional
	Holds *Resources `json:"holds,omitempty"`

	// Evict makes the task leave its robot and wait for one again, if this is the
	// number of its present attempt: a wish that comes late means no other one.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Evict int32 `json:"evict,omitempty"`

	// Constraints that a robot must meet.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	// +listType=atomic
	Constraints []Constraint `json:"constraints,omitempty"`

	// RestartPolicy of the task on the same robot.
	// +optional
	RestartPolicy *RestartPolicy `json:"restartPolicy,omitempty"`

	// EphemeralDisk that the task shares with the others of its replica, once for all
	// of them.
	// +optional
	EphemeralDisk *EphemeralDisk `json:"ephemeralDisk,omitempty"`
}

// TaskStatus is written by the manager and the server, each only along its
// own edges of the task's state machine (docs/spec/task.md).
type TaskStatus struct {
	// State of the task. Empty reads as pending.
	// +optional
	// +kubebuilder:validation:Enum="";pending;dispatching;running;unknown;exited;soft-failed;paused;completed;failed;canceled
	State string `json:"state,omitempty"`
	// Attempt is the number of the attempt that counts, from 1. Zero: none
	// yet. The manager sets it, and it fences off every older one.
	// +optional
	Attempt int32 `json:"attempt,omitempty"`
	// Original is the attempt that was lost with its robot and may count again
	// when the robot is back. Zero: none. Written by the manager.
	// +optional
	Original int32 `json:"original,omitempty"`
	// Attempts are the last ten, oldest first. The manager opens an entry,
	// the server closes it with what the robot said.
	// +optional
	// +kubebuilder:validation:MaxItems=10
	// +listType=map
	// +listMapKey=attempt
	Attempts []TaskAttempt `json:"attempts,omitempty"`
	// Outputs are the values that the task handed on. Written by the server.
	// +optional
	Outputs map[string]string `json:"outputs,omitempty"`
	// StartedAt is when the attempt's process started, by the robot's clock.
	// Written by the server.
	// +optional
	StartedAt *metav1.MicroTime `json:"startedAt,omitempty"`
	// FinishedAt is when the attempt's process ended, by the robot's clock.
	// Written by the server.
	// +optional
	FinishedAt *metav1.MicroTime `json:"finishedAt,omitempty"`
	// RestartCount is the number of attempts after the first. Written by the
	// manager.
	// +optional
	RestartCount int32 `json:"restartCount,omitempty"`
	// LastRestartTime is when the last of them began. Written by the manager.
	// +optional
	LastRestartTime *metav1.MicroTime `json:"lastRestartTime,omitempty"`
	// Restarts on the present robot. Written by the manager.
	// +optional
	Restarts *Restarts `json:"restarts,omitempty"`
	// FailedRobots have failed the task, and are not given it again. Written by
	// the manager; requeueing the task clears the list.
	// +optional
	// +kubebuilder:validation:MaxItems=256
	// +listType=atomic
	FailedRobots []string `json:"failedRobots,omitempty"`
	// RetryAt is when the task may be tried again. Written by the manager.
	// +optional
	RetryAt *metav1.MicroTime `json:"retryAt,omitempty"`
	// Message for people, by whoever wrote the state.
	// +optional
	Message string `json:"message,omitempty"`
	// Reason for programs, by whoever wrote the state.
	// +optional
	Reason string `json:"reason,omitempty"`
	// ExitCode of the attempt's process. Not set while it runs. Written by
	// the server.
	// +optional
	ExitCode *int32 `json:"exitCode,omitempty"`
	// Signal that ended the attempt's process. Zero: none. Written by the
	// server.
	// +optional
	Signal int32 `json:"signal,omitempty"`
	// Events are the last ten things that happened on the robot. Written by
	// the server.
	// +optional
	// +kubebuilder:validation:MaxItems=10
	// +listType=atomic
	Events []TaskEvent `json:"events,omitempty"`
	// Resources that the task used when last seen, or in all when it has ended.
	// Written by the server.
	// +optional
	Resources *ResourceUse `json:"resources,omitempty"`
	// Conditions of the task. SecretsReady is written by the server, all others by
	// the manager.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// MaxAttempts and MaxEvents bound the histories in a Task's status.
const (
	MaxAttempts = 10
	MaxEvents   = 10
)

// Restarts are the attempts that followed a failed one on the same robot, as
// the restartPolicy counts them.
type Restarts struct {
	// Robot that they are on.
	Robot string `json:"robot"`
	// Count of them in the present interval.
	Count int32 `json:"count"`
	// Since is when the interval began.
	Since metav1.MicroTime `json:"since"`
}

// TaskAttempt is one run of a task, or the try of one.
type TaskAttempt struct {
	// Attempt is its number, from 1.
	Attempt int32 `json:"attempt"`
	// Robot that it ran on.
	// +optional
	Robot string `json:"robot,omitempty"`
	// RobotNamespace is where that Robot is, if it is shared. Empty: in the Task's
	// own namespace.
	// +optional
	RobotNamespace string `json:"robotNamespace,omitempty"`
	// State of the attempt, in the words of the task's state.
	// +optional
	State string `json:"state,omitempty"`
	// StartedAt is by the robot's clock.
	// +optional
	StartedAt *metav1.MicroTime `json:"startedAt,omitempty"`
	// FinishedAt is by the robot's clock.
	// +optional
	FinishedAt *metav1.MicroTime `json:"finishedAt,omitempty"`
	// ExitCode of the process. Not set while it runs.
	// +optional
	ExitCode *int32 `json:"exitCode,omitempty"`
	// Signal that ended the process. Zero: none.
	// +optional
	Signal int32 `json:"signal,omitempty"`
	// Reason why it ended.
	// +optional
	Reason string `json:"reason,omitempty"`
}

// TaskEvent is something that happened to a task on its robot.
type TaskEvent struct {
	// Type is a word, such as Started or Timeout.
	Type string `json:"type"`
	// Time is by the robot's clock.
	Time metav1.MicroTime `json:"time"`
	// DisplayMessage is for people.
	// +optional
	DisplayMessage string `json:"displayMessage,omitempty"`
}

// ResourceUse is what a task used when last seen, or in all when it has ended.
type ResourceUse struct {
	// CPUPercent is of one core: 250 is two and a half cores.
	// +optional
	CPUPercent float64 `json:"cpuPercent,omitempty"`
	// MemoryBytes is what it had in memory.
	// +optional
	MemoryBytes int64 `json:"memoryBytes,omitempty"`
	// CPUSeconds is the time that it has used. It comes with its end.
	// +optional
	CPUSeconds float64 `json:"cpuSeconds,omitempty"`
	// MemoryPeakBytes is the most memory that it had. It comes with its end.
	// +optional
	MemoryPeakBytes int64 `json:"memoryPeakBytes,omitempty"`
}
