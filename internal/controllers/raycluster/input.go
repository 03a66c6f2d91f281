package raycluster

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	"k8s4r.io/k8s4r/internal/controllers/raycluster/build"
)

// Input is all that Plan depends on for one cluster. It must not be modified.
type Input struct {
	Cluster *rayv1.RayCluster
	// Pods are the Pods of the cluster, sorted by name.
	Pods []*corev1.Pod
	// Creating holds the names of created Pods that are not in the cache yet.
	Creating map[string]bool
	// Deleting holds the UIDs of deleted Pods that the cache does not show as terminating yet.
	Deleting map[types.UID]bool
	// MissingNodes holds the nodes of terminating Pods that no longer exist.
	MissingNodes map[string]bool
	// Generations are the generations of Pod names by group, from the cluster's annotation.
	Generations map[string]int
	// PastNames holds the names of the Pods that each slot has had in the generation of its group.
	PastNames map[slot]map[string]bool
	// Retries counts the failed Pods of each slot.
	Retries map[slot]int
	// Taken holds Pod names that belong to another owner.
	Taken map[string]bool
	// HeadService is the cluster's own Service of the head. If nil, it is not in the cache.
	HeadService *corev1.Service
	// Policies are the cluster's own NetworkPolicies, sorted by name.
	Policies []*networkingv1.NetworkPolicy
	// CleanupJob is the cluster's own Job that removes its keys from Redis once it is deleted. If nil,
	// it does not exist.
	CleanupJob *batchv1.Job
	// MissingServiceAccount is set if the user's service account for the head does not exist.
	MissingServiceAccount bool
	// Token is a random token, set if the cluster needs a Secret. Plan itself uses no randomness.
	Token string
}

// Actions is what the controller applies after one Plan, in the order of the fields.
type Actions struct {
	// Rejections are the reasons why the spec cannot be applied. If not empty, nothing else is done.
	Rejections []build.Invalid
	// Warnings are findings that do not keep the spec from being applied. They become events.
	Warnings []build.Invalid
	// AddFinalizer and RemoveFinalizer name a finalizer. If empty, none is added or removed.
	AddFinalizer, RemoveFinalizer string
	// Ensure are the objects that must exist before the Pods.
	Ensure []client.Object
	// DeletePolicies are NetworkPolicies that the spec no longer asks for.
	DeletePolicies []*networkingv1.NetworkPolicy
	// Restamp are the Pods to adopt from another version of the controller.
	Restamp []Restamp
	// Delete are the Pods to delete, heads after the others.
	Delete []Deletion
	// Generations are the generations of Pod names to write. If nil, they are unchanged.
	Generations map[string]int
	// Create are the Pods to create, in this order.
	Create []*corev1.Pod
	// Job is the Redis cleanup Job to create. If nil, none is.
	Job *batchv1.Job
	// Forget drops the expectations about Pods, because all of them are deleted.
	Forget bool
	// Problem is the user-facing reason why the Pods do not match the spec. If empty, they do or
	// will.
	Problem string
	// Excess names the number that is beyond the limits of a cluster. If not empty, no Pods are
	// created or deleted.
	Excess string
	// Events are those that are not about a single Pod.
	Events []Event
	// RequeueAt is when to plan again. If zero, only a watch event triggers it.
	RequeueAt time.Time
	// Reasons has one line for each decision.
	Reasons []string
}

// Event is an event about a cluster.
type Event struct{ Type, Reason, Action, Message string }

// Restamp holds the annotations to write to a Pod.
type Restamp struct {
	Pod         *corev1.Pod
	Annotations map[string]string
}

// Deletion is the deletion of a Pod.
type Deletion struct {
	Pod *corev1.Pod
	// Event is recorded after the deletion. If its reason is empty, one event covers several Pods.
	Event Event
	// Failed is the reason of the condition ReplicaFailure if the deletion fails.
	Failed string
	// Retry is set if the Pod is deleted because it failed; the failure is counted.
	Retry bool
}
