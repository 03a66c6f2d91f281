package v1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ClusterState is one word on a cluster.
//
// +kubebuilder:validation:Enum="";ready;unhealthy;failed;suspended
type ClusterState string

// The states. The API takes unhealthy and failed too, which older controllers have
// written; this one writes neither.
const (
	// StateReady: all Pods are there and ready.
	StateReady ClusterState = "ready"
	// StateSuspended: the user has suspended it, and no Pod is left.
	StateSuspended ClusterState = "suspended"
)

// RayClusterStatus is what has come of a cluster. Written only by the raycluster
// controller. All numbers of replicas are numbers of Pods.
type RayClusterStatus struct {
	// State in one word. Empty: not yet ready.
	// +optional
	State ClusterState `json:"state,omitempty"`
	// Reason why the state is not ready, for people.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Conditions, each with a reason and a message.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// DesiredWorkerReplicas is how many worker Pods there shall be.
	// +optional
	DesiredWorkerReplicas int32 `json:"desiredWorkerReplicas,omitempty"`
	// AvailableWorkerReplicas is how many worker Pods run.
	// +optional
	AvailableWorkerReplicas int32 `json:"availableWorkerReplicas,omitempty"`
	// ReadyWorkerReplicas is how many worker Pods run and are ready.
	// +optional
	ReadyWorkerReplicas int32 `json:"readyWorkerReplicas,omitempty"`
	// MinWorkerReplicas is the least number of worker Pods.
	// +optional
	MinWorkerReplicas int32 `json:"minWorkerReplicas,omitempty"`
	// MaxWorkerReplicas is the largest number of worker Pods.
	// +optional
	MaxWorkerReplicas int32 `json:"maxWorkerReplicas,omitempty"`
	// DesiredCPU of all Pods that there shall be.
	// +optional
	DesiredCPU resource.Quantity `json:"desiredCPU,omitempty"`
	// DesiredMemory of all Pods that there shall be.
	// +optional
	DesiredMemory resource.Quantity `json:"desiredMemory,omitempty"`
	// DesiredGPU of all Pods that there shall be, of any make.
	// +optional
	DesiredGPU resource.Quantity `json:"desiredGPU,omitempty"`
	// DesiredTPU of all Pods that there shall be.
	// +optional
	DesiredTPU resource.Quantity `json:"desiredTPU,omitempty"`
	// Endpoints of the head: a port by its name.
	// +optional
	Endpoints map[string]string `json:"endpoints,omitempty"`
	// Head is where the head is found.
	// +optional
	Head HeadInfo `json:"head,omitempty"`
	// LastUpdateTime is when the status was last written.
	// +optional
	// +nullable
	LastUpdateTime *metav1.Time `json:"lastUpdateTime,omitempty"`
	// StateTransitionTimes is when the cluster last came into each state.
	// +optional
	StateTransitionTimes map[ClusterState]*metav1.Time `json:"stateTransitionTimes,omitempty"`
	// ObservedGeneration of the object that the status was computed from.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// HeadInfo is where the head is found.
type HeadInfo struct {
	// PodIP of the head Pod.
	// +optional
	PodIP string `json:"podIP,omitempty"`
	// PodName of the head Pod.
	// +optional
	PodName string `json:"podName,omitempty"`
	// ServiceIP of the head's Service. Where that is headless: the Pod's.
	// +optional
	ServiceIP string `json:"serviceIP,omitempty"`
	// ServiceName of the head's Service.
	// +optional
	ServiceName string `json:"serviceName,omitempty"`
}

// The types of conditions.
const (
	// HeadPodReady: the head Pod is ready.
	HeadPodReady = "HeadPodReady"
	// RayClusterProvisioned: all Pods have run once. It stays until the cluster is suspended.
	RayClusterProvisioned = "RayClusterProvisioned"
	// ReplicaFailure: a Pod could not be created or deleted. Gone when it could.
	ReplicaFailure = "ReplicaFailure"
	// RayClusterSuspending: the Pods are being deleted, and will be in any case.
	RayClusterSuspending = "RayClusterSuspending"
	// RayClusterSuspended: all Pods are gone, because the user wants it so.
	RayClusterSuspended = "RayClusterSuspended"
)

// The reasons of conditions.
const (
	// ReasonHeadPodNotFound: there is no head Pod.
	ReasonHeadPodNotFound = "HeadPodNotFound"
	// ReasonHeadPodRunningAndReady: the head Pod is ready.
	ReasonHeadPodRunningAndReady = "HeadPodRunningAndReady"
	// ReasonUnknown: Kubernetes gives none.
	ReasonUnknown = "Unknown"
	// ReasonPodsProvisioning: not all Pods have run yet.
	ReasonPodsProvisioning = "RayClusterPodsProvisioning"
	// ReasonAllPodRunningAndReadyFirstTime: all Pods have run once.
	ReasonAllPodRunningAndReadyFirstTime = "AllPodRunningAndReadyFirstTime"
	// ReasonSuspended: the user has suspended the cluster.
	ReasonSuspended = "RayClusterSuspended"
	// ReasonSuspending: the user wants the cluster suspended.
	ReasonSuspending = "RayClusterSuspending"
	// ReasonFailedDeleteAllPods is one of ReplicaFailure, as are those that follow.
	ReasonFailedDeleteAllPods   = "FailedDeleteAllPods"
	ReasonFailedDeleteHeadPod   = "FailedDeleteHeadPod"
	ReasonFailedCreateHeadPod   = "FailedCreateHeadPod"
	ReasonFailedDeleteWorkerPod = "FailedDeleteWorkerPod"
	ReasonFailedCreateWorkerPod = "FailedCreateWorkerPod"
)
