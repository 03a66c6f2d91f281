package taskstate

import (
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// Replica identifies the tasks that share a robot. A task without a TaskGroup is a
// replica of its own.
type Replica struct {
	Group types.NamespacedName // zero for a task without a TaskGroup
	Index string               // of the replica; namespace and name for a task without a TaskGroup
}

// String returns a key that is unique for a replica within one namespace.
func (r Replica) String() string { return r.Group.Name + "/" + r.Index }

// ReplicaOf returns the replica that a Task belongs to.
func ReplicaOf(t *v1alpha1.Task) Replica {
	owner := metav1.GetControllerOf(t)
	if owner == nil || owner.Kind != "TaskGroup" {
		return Replica{Index: t.Namespace + "/" + t.Name}
	}
	return Replica{
		Group: types.NamespacedName{Namespace: t.Namespace, Name: owner.Name},
		Index: t.Labels[v1alpha1.LabelTaskIndex],
	}
}

// ReplicaIndex returns the index of the Task's replica, from 0. A Task without a valid index
// label counts as replica 0.
func ReplicaIndex(t *v1alpha1.Task) int {
	n, err := strconv.Atoi(t.Labels[v1alpha1.LabelTaskIndex])
	if err != nil {
		return 0
	}
	return n
}
