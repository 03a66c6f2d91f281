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
	// Status is what has come of it.
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
// +kubebuilder:validation:XValidation:rule="!has(self.initTasks) || self.initTasks.all(i, !self.tasks.exists(t, t.name == i.name))",message="a name must not stand in both initTasks and tasks"
// +kubebuilder:validation:XValidation:rule="!has(self.gang) || !self.gang || !has(self.count) || (self.count <= 128 && self.count * (size(self.tasks) + (has(self.initTasks) ? size(self.initTasks) : 0)) <= 500)",message="gang: a gang is placed in one go and has at most 128 replicas and 500 tasks; lower count, or leave gang out"
type TaskGroupSpec struct {
	// JobName is the Job that the group belongs to, in the same namespace.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	JobName string `json:"jobName"`
	// GroupName is the name of the group within its Job.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	GroupName string `json:"groupName"`

	TaskGroupTemplate `json:",inline"`
}

// TaskGroupStatus is written only by the manager's taskgroup controller.
type TaskGroupStatus struct {
	// State of the group.
	// +optional
	// +kubebuilder:validation:Enum=pending;running;paused;completed;failed;canceled
	State string `json:"state,omitempty"`
	// StatusDescription keeps the last change and why it happened.
	// +optional
	StatusDescription string `json:"statusDescription,omitempty"`

	TaskCounts `json:",inline"`

	// CreatedReplicas is the number of replicas whose Tasks have been created.
	// Replicas are created in order, in a moving window; those of a system job
	// as robots come.
	// +optional
	CreatedReplicas int32 `json:"createdReplicas,omitempty"`
	// CanceledFrom is the index from which on replicas were canceled before they
	// were created, and stay so until the whole job is requeued. Nil: none.
	// +optional
	// +kubebuilder:validation:Minimum=0
	CanceledFrom *int32 `json:"canceledFrom,omitempty"`
	// StartedAt is when the first task started.
	// +optional
	StartedAt *metav1.MicroTime `json:"startedAt,omitempty"`
	// CompletedAt is when the group ended, well or badly.
	// +optional
	CompletedAt *metav1.MicroTime `json:"completedAt,omitempty"`
	// ObservedRequeue is the generation of the last requeue of the job that all
	// tasks of the group have followed.
	// +optional
	ObservedRequeue int64 `json:"observedRequeue,omitempty"`
	// BlockedRobots take no more tasks of this group, because they failed too
	// many of them. A requeue that names no tasks clears the list.
	// +optional
	// +kubebuilder:validation:MaxItems=1024
	// +listType=set
	BlockedRobots []string `json:"blockedRobots,omitempty"`
	// ObservedGeneration is the generation of the spec that this status is
	// about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Revisions are what Tasks take from the spec of that generation, as a hash,
	// by the name of the task. A Task that carries another one is of an older
	// definition.
	// +optional
	// +kubebuilder:validation:MaxProperties=48
	Revisions map[string]string `json:"revisions,omitempty"`
	// Conditions Complete, Failed and Suspended, and RolledOver once the group
	// was changed.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
