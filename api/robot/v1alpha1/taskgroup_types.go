package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TaskGroup is one group of a Job with its replicas.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=taskgroups,singular=taskgroup,shortName=rtg,categories=k8s4r
// +kubebuilder:printcolumn:name="Job",type=string,JSONPath=`.spec.jobName`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Total",type=integer,JSONPath=`.status.totalTasks`
// +kubebuilder:printcolumn:name="Running",type=integer,JSONPath=`.status.runningTasks`
// +kubebuilder:printcolumn:name="Succeeded",type=integer,JSONPath=`.status.succeededTasks`
// +kubebuilder:printcolumn:name="Failed",type=integer,JSONPath=`.status.failedTasks`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type TaskGroup struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the group as its Job defines it.
	Spec TaskGroupSpec `json:"spec"`
	// Status is the observed state of the group.
	// +optional
	Status TaskGroupStatus `json:"status,omitempty"`
}

// TaskGroupList is a list of TaskGroups.
//
// +kubebuilder:object:root=true
type TaskGroupList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []TaskGroup `json:"items"`
}

// TaskGroupSpec is one group of a Job.
//
// +kubebuilder:validation:XValidation:rule="!has(self.initTasks) || self.initTasks.all(i, !self.tasks.exists(t, t.name == i.name))",message="a name must not occur in both initTasks and tasks"
// +kubebuilder:validation:XValidation:rule="!has(self.gang) || !self.gang || !has(self.count) || (self.count <= 128 && self.count * (size(self.tasks) + (has(self.initTasks) ? size(self.initTasks) : 0)) <= 500)",message="gang: a gang has at most 128 replicas and 500 tasks; lower count, or omit gang"
// +kubebuilder:validation:XValidation:rule="!has(self.array) || !has(self.count) || self.count == 1",message="count: the array defines the number of tasks; omit count"
// +kubebuilder:validation:XValidation:rule="!has(self.array) || size(self.tasks) == 1 && (!has(self.initTasks) || size(self.initTasks) == 0)",message="array: an array runs one task, without init tasks; move other tasks to groups of their own, or use count instead of array"
// +kubebuilder:validation:XValidation:rule="!has(self.array) || (!has(self.gang) || !self.gang) && !has(self.ephemeralDisk)",message="array: indexes neither start together nor share a directory; omit gang and ephemeralDisk, or use count instead of array"
// +kubebuilder:validation:XValidation:rule="!has(self.array) || !has(self.restartPolicy) || !has(self.restartPolicy.onReboot) || self.restartPolicy.onReboot == 'report'",message="array: the robot starts no index again after its restart, the manager does; omit restartPolicy.onReboot, or use count instead of array"
// +kubebuilder:validation:XValidation:rule="!has(self.array) || self.tasks.all(t, !(has(t.daemon) && t.daemon) && (!has(t.secretEnv) || size(t.secretEnv) == 0))",message="array: the task of an array has neither daemon nor secretEnv; omit them, or use count instead of array"
type TaskGroupSpec struct {
	// JobName is the name of the Job that the group belongs to, in the same namespace.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	JobName string `json:"jobName"`
	// GroupName is the name of the group within its Job.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	GroupName string `json:"groupName"`

	TaskGroupTemplate `json:",inline"`
}

// TaskGroupStatus is the observed state of a group. Only the manager's taskgroup controller
// writes it.
type TaskGroupStatus struct {
	// State of the group, derived from its tasks.
	// +optional
	// +kubebuilder:validation:Enum=pending;running;paused;completed;failed;canceled
	State string `json:"state,omitempty"`
	// StatusDescription describes the last change of the state and its reason.
	// +optional
	StatusDescription string `json:"statusDescription,omitempty"`

	TaskCounts `json:",inline"`

	// CreatedReplicas is the number of replicas whose Tasks have been created. Replicas are
	// created in order, a limited number at a time; those of a system job as robots register.
	// +optional
	CreatedReplicas int32 `json:"createdReplicas,omitempty"`
	// CanceledFromReplica is the index of the first replica that was canceled before its Tasks
	// were created. A requeue of the whole job clears it. Not set if there is none.
	// +optional
	// +kubebuilder:validation:Minimum=0
	CanceledFromReplica *int32 `json:"canceledFromReplica,omitempty"`
	// StartedAt is the time at which the first task started.
	// +optional
	StartedAt *metav1.MicroTime `json:"startedAt,omitempty"`
	// CompletedAt is the time at which the group completed, failed or was canceled.
	// +optional
	CompletedAt *metav1.MicroTime `json:"completedAt,omitempty"`
	// ObservedRequeue is the generation of the last requeue of the job that was applied to all
	// tasks of the group.
	// +optional
	ObservedRequeue int64 `json:"observedRequeue,omitempty"`
	// ObservedStateChanges is the stateChanges of the job that all tasks of the group have followed:
	// none of them can start before the next change. It is written while the job waits for it, which
	// is when tasks are being paused or canceled.
	// +optional
	ObservedStateChanges int64 `json:"observedStateChanges,omitempty"`
	// BlockedRobots are the names of robots that get no more tasks of this group because too many
	// failed there. A requeue that names no tasks clears the list.
	// +optional
	// +kubebuilder:validation:MaxItems=1024
	// +listType=set
	BlockedRobots []string `json:"blockedRobots,omitempty"`
	// ObservedGeneration is the generation of the spec that this status is based on.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Revisions has, by the name of the task, a hash of the part of the spec that its Tasks take
	// over. A Task with another value in its label robot.k8s4r.io/revision is outdated.
	// +optional
	// +kubebuilder:validation:MaxProperties=48
	Revisions map[string]string `json:"revisions,omitempty"`
	// RolloutRevisions has the hashes of the revision that a Rollout changes Tasks to. While it is set,
	// Tasks may also have other revisions than these two: the Rollout has not reached them.
	// +optional
	// +kubebuilder:validation:MaxProperties=48
	RolloutRevisions map[string]string `json:"rolloutRevisions,omitempty"`
	// Conditions are Complete, Failed and Suspended, and RolledOut after the first change of the
	// definition.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
