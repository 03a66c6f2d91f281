package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Task is one program that runs on one robot. The manager creates the Tasks of a TaskGroup; a
// Task without a Job may also be created by hand.
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

	// Spec defines the program and the robot that runs it.
	Spec TaskSpec `json:"spec"`
	// Status is the observed state of the task.
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

// TaskSpec defines the program and the robot that runs it.
type TaskSpec struct {
	// JobName is the name of the Job that the task belongs to. If empty, the task was created by
	// hand.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	JobName string `json:"jobName,omitempty"`
	// TaskGroupName is the name of the TaskGroup object that the task belongs to. If empty, the
	// task was created by hand.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	TaskGroupName string `json:"taskGroupName,omitempty"`

	// Type is usually the type of the Job. A batch task runs to its end. Tasks of type service
	// and system are kept running. A task of a sysbatch job, or an init task of a system job, has
	// the type sysbatch: it runs to its end, and only on its own robot. If empty, batch.
	// +optional
	// +kubebuilder:validation:Enum="";batch;service;system;sysbatch
	Type string `json:"type,omitempty"`

	TaskDefinition `json:",inline"`

	// Meta holds the meta values of the Job and of the group, for templates and for references
	// such as ${meta.team}. Values of the group take precedence.
	// +optional
	// +kubebuilder:validation:MaxProperties=128
	Meta map[string]string `json:"meta,omitempty"`

	// TargetRobot is the name of the robot that runs the task. If empty, the manager chooses a
	// robot and sets it. A value that is set on creation is kept.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$`
	TargetRobot string `json:"targetRobot,omitempty"`

	// StopOnRobotAfter is copied from disconnect.stopOnRobotAfter of the Job: the robot stops the
	// task itself if no heartbeat was acknowledged for that long. If empty, the task continues to
	// run.
	// +optional
	StopOnRobotAfter *Duration `json:"stopOnRobotAfter,omitempty"`

	// DispatchTimeout is how long a connected robot may take to accept an attempt. After that the
	// robot is lost for the task. Copied from disconnect.dispatchTimeout of the Job. If empty, 1m.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!self.matches('^([0-9]{1,6}([.][0-9]+)?h)?([0-9]{1,7}([.][0-9]+)?m)?([0-9]{1,9}([.][0-9]+)?s)?([0-9]{1,12}([.][0-9]+)?ms)?([0-9]{1,15}([.][0-9]+)?us)?([0-9]{1,18}ns)?$') || size(self) == 0 || (duration(self) >= duration('10s') && duration(self) <= duration('1h'))",message="must be from 10s to 1h"
	DispatchTimeout *Duration `json:"dispatchTimeout,omitempty"`

	// ExtraResources are the resources that an init task needs in addition to what the other
	// tasks of its replica reserve on the robot. Set by the manager, and only for init tasks that
	// other tasks wait for.
	// +optional
	ExtraResources *Resources `json:"extraResources,omitempty"`

	// Stage is the position of the task in the start order of its replica. Init tasks have their
	// position in initTasks, from 1, and the other tasks come after them. A robot that was restarted
	// starts tasks of earlier stages first. If 0, the group has no init tasks. Set by the manager.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=17
	Stage int32 `json:"stage,omitempty"`

	// EvictAttempt is the number of an attempt to evict: while it is the current attempt, the
	// robot stops the task, which then waits to be placed again. Any other number has no effect.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	EvictAttempt int32 `json:"evictAttempt,omitempty"`

	// EvictionWaitsFor is what the eviction of evictAttempt waits for, if the agent of the robot refuses
	// interruptions (status.agent.refusesInterruptions): Holds of people at the robot, or HoldsAndWindows
	// for maintenance windows, too. While there is such an obstacle, the manager withdraws the eviction by
	// removing both fields, and the task runs on. If empty, the eviction waits for nothing.
	// +optional
	// +kubebuilder:validation:Enum=Holds;HoldsAndWindows
	EvictionWaitsFor string `json:"evictionWaitsFor,omitempty"`

	// Constraints that a robot must satisfy, all of them.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	// +listType=atomic
	Constraints []Constraint `json:"constraints,omitempty"`

	// RestartPolicy defines when a failed task runs again on the same robot. If empty, the
	// default of its type applies.
	// +optional
	RestartPolicy *RestartPolicy `json:"restartPolicy,omitempty"`

	// EphemeralDisk is a directory that all tasks of the replica share. If empty, there is none.
	// +optional
	EphemeralDisk *EphemeralDisk `json:"ephemeralDisk,omitempty"`

	// Array is what the Task runs of the array of its group. If empty, it does not belong to one.
	// +optional
	Array *TaskArray `json:"array,omitempty"`
}

// TaskStatus is the observed state of a task. The manager and the server write it, each only
// along its own edges of the task's state machine.
type TaskStatus struct {
	// State of the task. If empty, pending.
	// +optional
	// +kubebuilder:validation:Enum="";pending;dispatching;running;unknown;exited;soft-failed;paused;completed;failed;canceled
	State string `json:"state,omitempty"`
	// Attempt is the number of the current attempt, from 1; 0 if there was none. It is also the
	// fencing token: reports about other attempts do not change the state. Written by the
	// manager.
	// +optional
	Attempt int32 `json:"attempt,omitempty"`
	// LostAttempt is the number of an attempt whose robot was lost and that may become the
	// current attempt again when the robot is back; 0 if there is none. Written by the manager.
	// +optional
	LostAttempt int32 `json:"lostAttempt,omitempty"`
	// Attempts are the last 10 attempts, oldest first. The manager adds an entry, the server
	// completes it with what the robot reports.
	// +optional
	// +kubebuilder:validation:MaxItems=10
	// +listType=map
	// +listMapKey=attempt
	Attempts []TaskAttempt `json:"attempts,omitempty"`
	// Outputs are the values that the task has written to the file K8S4R_OUTPUTS, by name.
	// Written by the server.
	// +optional
	Outputs map[string]string `json:"outputs,omitempty"`
	// StartedAt is the time at which the process of the attempt started, by the robot's clock.
	// Written by the server.
	// +optional
	StartedAt *metav1.MicroTime `json:"startedAt,omitempty"`
	// FinishedAt is the time at which the process of the attempt ended, by the robot's clock.
	// Written by the server.
	// +optional
	FinishedAt *metav1.MicroTime `json:"finishedAt,omitempty"`
	// RestartCount is the number of attempts after the first, and of runs after the first in attempts
	// before the current one. Written by the manager.
	// +optional
	RestartCount int32 `json:"restartCount,omitempty"`
	// LastRestartTime is the time at which the last of them was created. Written by the manager.
	// +optional
	LastRestartTime *metav1.MicroTime `json:"lastRestartTime,omitempty"`
	// UnconfirmedStop is set while a process of the task may be running that should not: the task has
	// ended without its robot, such as by a cancel while the robot was out of contact. It is removed
	// when the robot has reported the end of the attempt, or has no object anymore. Not set if there
	// is none. Written by the manager.
	// +optional
	UnconfirmedStop *UnconfirmedStop `json:"unconfirmedStop,omitempty"`
	// Interruption is the last order to stop an attempt that its robot may refuse: an eviction for a
	// changed definition, or for a task of higher priority. Not set if there was none for the attempt.
	// Written by the manager, but its refusal by the server.
	// +optional
	Interruption *TaskInterruption `json:"interruption,omitempty"`
	// PauseAttempt is the number of an attempt that starts no further run: when its current run has
	// ended, the attempt ends. 0 if there is none. Written by the manager.
	// +optional
	PauseAttempt int32 `json:"pauseAttempt,omitempty"`
	// Restarts counts the restarts on the current robot, if its agent does not restart tasks itself.
	// Written by the manager.
	// +optional
	Restarts *Restarts `json:"restarts,omitempty"`
	// FailedRobots are the names of robots on which the task has failed. It is not placed there
	// again. A requeue of the task clears the list. Written by the manager.
	// +optional
	// +kubebuilder:validation:MaxItems=256
	// +listType=atomic
	FailedRobots []string `json:"failedRobots,omitempty"`
	// Placement explains why the task has no robot. Nil if it has one, waits for something
	// else, or was not looked at yet. Written by the manager.
	// +optional
	Placement *PlacementStatus `json:"placement,omitempty"`
	// RetryAt is the earliest time of the next attempt. Written by the manager.
	// +optional
	RetryAt *metav1.MicroTime `json:"retryAt,omitempty"`
	// Message explains the state to people. Its text may change between versions. Written by the
	// writer of the state.
	// +optional
	Message string `json:"message,omitempty"`
	// Reason is a CamelCase word for programs that explains the state, such as Timeout. Written
	// by the writer of the state.
	// +optional
	Reason string `json:"reason,omitempty"`
	// ExitCode of the process of the attempt. Not set while it runs. Written by the server.
	// +optional
	ExitCode *int32 `json:"exitCode,omitempty"`
	// Signal is the number of the signal that ended the process of the attempt; 0 if there was
	// none. Written by the server.
	// +optional
	Signal int32 `json:"signal,omitempty"`
	// Events are the last 10 events that the robot reported. Written by the server.
	// +optional
	// +kubebuilder:validation:MaxItems=10
	// +listType=atomic
	Events []TaskEvent `json:"events,omitempty"`
	// Array is what has become of the indexes of a range. Not set for other Tasks.
	// +optional
	Array *TaskArrayStatus `json:"array,omitempty"`
	// Resources is the resource usage last reported, or in total if the task has ended. Written
	// by the server.
	// +optional
	Resources *ResourceUse `json:"resources,omitempty"`
	// Conditions of the task. The server writes SecretsReady, the manager all others.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// MaxAttempts, MaxRuns and MaxEvents bound the histories in a Task's status.
const (
	MaxAttempts = 10
	MaxRuns     = 10 // of an attempt
	MaxEvents   = 10
)

// UnconfirmedStop is an attempt that was ended without its robot. Until the robot has received the stop,
// the process may run on, and the agent may restart it.
type UnconfirmedStop struct {
	// Robot is the name of the robot.
	Robot string `json:"robot"`
	// Attempt is the number of the attempt. If there are several, it is the oldest one.
	Attempt int32 `json:"attempt"`
	// Since is the time at which the manager has noticed it.
	Since metav1.MicroTime `json:"since"`
}

// TaskInterruption is an order to stop an attempt that its robot may refuse.
type TaskInterruption struct {
	// Attempt is the number of the attempt.
	Attempt int32 `json:"attempt"`
	// Until is when the maintenance window closes, after which the robot must not stop the attempt anymore.
	// Not set if no window limits the order.
	// +optional
	Until *metav1.MicroTime `json:"until,omitempty"`
	// WithdrawnAt is when the manager has withdrawn the order, because of a hold or a closed window. The
	// attempt runs on. Not set while the order is in force.
	// +optional
	WithdrawnAt *metav1.MicroTime `json:"withdrawnAt,omitempty"`
	// Refusal is the answer of the robot, if it refuses the order: Held or WindowClosed. Written by the
	// server.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Refusal string `json:"refusal,omitempty"`
	// PriorReason is the reason of the task before the order.
	// +optional
	PriorReason string `json:"priorReason,omitempty"`
	// PriorMessage is the message of the task before the order.
	// +optional
	PriorMessage string `json:"priorMessage,omitempty"`
}

// Restarts counts the restarts of a task on the same robot, for the restartPolicy.
type Restarts struct {
	// Robot is the name of the robot.
	Robot string `json:"robot"`
	// Count is the number of restarts in the current interval.
	Count int32 `json:"count"`
	// Since is the start of the current interval.
	Since metav1.MicroTime `json:"since"`
}

// TaskAttempt is one try to run a task on one robot.
type TaskAttempt struct {
	// Attempt is the number of the attempt, from 1.
	Attempt int32 `json:"attempt"`
	// Robot is the name of the robot.
	// +optional
	Robot string `json:"robot,omitempty"`
	// RobotNamespace is the namespace of a shared Robot. If empty, the Robot is in the namespace
	// of the Task.
	// +optional
	RobotNamespace string `json:"robotNamespace,omitempty"`
	// RobotMissingSince is the time since which the Robot of an attempt that may still be running
	// has had no object. Not set while the Robot exists. Written by the manager.
	// +optional
	RobotMissingSince *metav1.MicroTime `json:"robotMissingSince,omitempty"`
	// State of the attempt, one of the states of a task.
	// +optional
	State string `json:"state,omitempty"`
	// StartedAt is the time at which the process started, by the robot's clock.
	// +optional
	StartedAt *metav1.MicroTime `json:"startedAt,omitempty"`
	// FinishedAt is the time at which the process ended, by the robot's clock.
	// +optional
	FinishedAt *metav1.MicroTime `json:"finishedAt,omitempty"`
	// ExitCode of the process. Not set while it runs.
	// +optional
	ExitCode *int32 `json:"exitCode,omitempty"`
	// Signal is the number of the signal that ended the process; 0 if there was none.
	// +optional
	Signal int32 `json:"signal,omitempty"`
	// Reason is a CamelCase word for programs that explains why the attempt ended.
	// +optional
	Reason string `json:"reason,omitempty"`
	// RunCount is how often the robot has started the process, by the restartPolicy. 0 if its agent does
	// not restart tasks itself: the manager does. Written by the server.
	// +optional
	RunCount int64 `json:"runCount,omitempty"`
	// Runs are the last 10 runs of an attempt with more than one, oldest first. Written by the server.
	// +optional
	// +kubebuilder:validation:MaxItems=10
	// +listType=map
	// +listMapKey=run
	Runs []TaskRun `json:"runs,omitempty"`
	// NextRunAt is when the next run starts, by the robot's clock. Not set while the process runs.
	// Written by the server.
	// +optional
	NextRunAt *metav1.MicroTime `json:"nextRunAt,omitempty"`
}

// TaskRun is one process of an attempt, from its start to its end.
type TaskRun struct {
	// Run is the number of the run within the attempt, from 1.
	Run int64 `json:"run"`
	// StartedAt is the time at which the process started, by the robot's clock.
	// +optional
	StartedAt *metav1.MicroTime `json:"startedAt,omitempty"`
	// FinishedAt is the time at which the process ended, by the robot's clock.
	// +optional
	FinishedAt *metav1.MicroTime `json:"finishedAt,omitempty"`
	// ExitCode of the process. Not set while it runs.
	// +optional
	ExitCode *int32 `json:"exitCode,omitempty"`
	// Signal is the number of the signal that ended the process; 0 if there was none.
	// +optional
	Signal int32 `json:"signal,omitempty"`
	// Reason is a CamelCase word for programs that explains why the run ended.
	// +optional
	Reason string `json:"reason,omitempty"`
}

// TaskEvent is an event of a task that its robot reported.
type TaskEvent struct {
	// Type is a CamelCase word, such as Started or Timeout.
	Type string `json:"type"`
	// Time of the event, by the robot's clock.
	Time metav1.MicroTime `json:"time"`
	// DisplayMessage explains the event to people.
	// +optional
	DisplayMessage string `json:"displayMessage,omitempty"`
}

// ResourceUse is the resource usage of a task: as last reported, or in total if it has ended.
type ResourceUse struct {
	// CPUPercent is the usage in percent of one core: 250 is two and a half cores.
	// +optional
	CPUPercent float64 `json:"cpuPercent,omitempty"`
	// MemoryBytes is the memory in use, in bytes.
	// +optional
	MemoryBytes int64 `json:"memoryBytes,omitempty"`
	// CPUSeconds is the CPU time used in total. Reported when the task ends.
	// +optional
	CPUSeconds float64 `json:"cpuSeconds,omitempty"`
	// MemoryPeakBytes is the largest amount of memory used, in bytes. Reported when the task
	// ends.
	// +optional
	MemoryPeakBytes int64 `json:"memoryPeakBytes,omitempty"`
}
