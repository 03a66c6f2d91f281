package raycluster

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	"k8s4r.io/k8s4r/internal/controllers/raycluster/build"
)

// World is all that a decision about one cluster depends on. It is only read.
type World struct {
	Cluster *rayv1.RayCluster
	// Pods of the cluster, by name.
	Pods []*corev1.Pod
	// Creating names Pods that were created and do not show yet.
	Creating map[string]bool
	// Deleting are Pods that were deleted and do not show it yet.
	Deleting map[types.UID]bool
	// NoNode names nodes of Pods that are being deleted and that are no more.
	NoNode map[string]bool
	// Refilled is how often each place was filled anew, as the cluster says. It names
	// the Pods.
	Refilled map[slot]int
	// Met are the names of Pods that were seen in each place since it was last filled
	// anew.
	Met map[slot]map[string]bool
	// Retries of places whose Pods do not live long.
	Retries map[slot]int
	// Taken are names of Pods that somebody else holds.
	Taken map[string]bool
	// HeadService is the Service of the head. Nil: it does not show.
	HeadService *corev1.Service
	// CleanupJob removes the keys of a deleted cluster from Redis. Nil: there is none.
	CleanupJob *batchv1.Job
	// NoAccount tells that the user's service account for the head does not exist.
	NoAccount bool
	// Token for a cluster that needs one: chance comes from outside.
	Token string
	// LastStatus is when the status was last written.
	LastStatus time.Time
}

// Steps is what to do, in this order, and when to look again.
type Steps struct {
	// Refused is why the object cannot be carried out. Nothing else is done then.
	Refused []build.Invalid
	// Warned is what can be carried out, and is to be told to its author.
	Warned []build.Invalid
	// Finalizer to be added, or to be removed. Empty: none.
	AddFinalizer, RemoveFinalizer string
	// Ensure are objects that are to exist before the Pods.
	Ensure []client.Object
	// Restamp are Pods to be taken over from another version of the controller.
	Restamp []Restamp
	// Delete are Pods to be deleted, heads after the others.
	Delete []Deletion
	// Refilled is what the cluster is to say of that. Nil: what it says.
	Refilled map[slot]int
	// Create are Pods to be created, in this order.
	Create []*corev1.Pod
	// Job to be created.
	Job *batchv1.Job
	// Forget what was expected of the Pods, for they all go.
	Forget bool
	// Fault is why the Pods are not as the spec says, for people. Empty: they are, or
	// will be.
	Fault string
	// Said are events about what is not done Pod by Pod.
	Said []Event
	// WakeAt is when to look again. Zero: a watch will wake us.
	WakeAt time.Time
	// Why has one line for each decision.
	Why []string
}

// Event is about a cluster.
type Event struct{ Type, Reason, Action, Message string }

// Restamp are annotations for a Pod.
type Restamp struct {
	Pod         *corev1.Pod
	Annotations map[string]string
}

// Deletion of a Pod.
type Deletion struct {
	Pod *corev1.Pod
	// Event says so once it is done. Its reason is empty: one event is about all.
	Event Event
	// Failed is the reason of the condition ReplicaFailure when it cannot be done.
	Failed string
	// Retry tells that the Pod goes because it cannot work any more.
	Retry bool
}
