package v1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ClusterState is the state of a cluster.
//
// +kubebuilder:validation:Enum="";ready;unhealthy;failed;suspended
type ClusterState string

// The states. The API also accepts unhealthy and failed, which older controllers wrote.
const (
	// StateReady: all Pods exist and are ready.
	StateReady ClusterState = "ready"
	// StateSuspended: the user has suspended the cluster, and all Pods are deleted.
	StateSuspended ClusterState = "suspended"
)

// RayClusterStatus is the observed state of a cluster. Only the raycluster controller writes it.
// All numbers of replicas are numbers of Pods.
type RayClusterStatus struct {
	// State of the cluster: ready or suspended. Empty while the cluster is not ready.
	// +optional
	State ClusterState `json:"state,omitempty"`
	// Reason explains to people why the cluster is not ready.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Conditions of the cluster: HeadPodReady, RayClusterProvisioned, RayClusterSuspending,
	// RayClusterSuspended and ReplicaFailure.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// DesiredWorkerReplicas is the desired number of worker Pods.
	// +optional
	DesiredWorkerReplicas int32 `json:"desiredWorkerReplicas,omitempty"`
	// AvailableWorkerReplicas is the number of running worker Pods.
	// +optional
	AvailableWorkerReplicas int32 `json:"availableWorkerReplicas,omitempty"`
	// ReadyWorkerReplicas is the number of worker Pods that are running and ready.
	// +optional
	ReadyWorkerReplicas int32 `json:"readyWorkerReplicas,omitempty"`
	// MinWorkerReplicas is the lowest number of worker Pods, from minReplicas of all groups.
	// +optional
	MinWorkerReplicas int32 `json:"minWorkerReplicas,omitempty"`
	// MaxWorkerReplicas is the highest number of worker Pods, from maxReplicas of all groups.
	// +optional
	MaxWorkerReplicas int32 `json:"maxWorkerReplicas,omitempty"`
	// DesiredCPU is the CPU of all desired Pods.
	// +optional
	DesiredCPU resource.Quantity `json:"desiredCPU,omitempty"`
	// DesiredMemory is the memory of all desired Pods.
	// +optional
	DesiredMemory resource.Quantity `json:"desiredMemory,omitempty"`
	// DesiredGPU is the number of GPUs, of any vendor, of all desired Pods.
	// +optional
	DesiredGPU resource.Quantity `json:"desiredGPU,omitempty"`
	// DesiredTPU is the number of TPUs of all desired Pods.
	// +optional
	DesiredTPU resource.Quantity `json:"desiredTPU,omitempty"`
	// Endpoints maps the names of the head's ports to their numbers.
	// +optional
	Endpoints map[string]string `json:"endpoints,omitempty"`
	// Head has the addresses of the head.
	// +optional
	Head HeadInfo `json:"head,omitempty"`
	// LastUpdateTime is the time at which the status was last written.
	// +optional
	// +nullable
	LastUpdateTime *metav1.Time `json:"lastUpdateTime,omitempty"`
	// StateTransitionTimes maps states to the time at which the cluster last entered them.
	// +optional
	StateTransitionTimes map[ClusterState]*metav1.Time `json:"stateTransitionTimes,omitempty"`
	// ObservedGeneration is the metadata.generation that this status is based on.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// HeadInfo has the addresses of the head.
type HeadInfo struct {
	// PodIP of the head Pod.
	// +optional
	PodIP string `json:"podIP,omitempty"`
	// PodName of the head Pod.
	// +optional
	PodName string `json:"podName,omitempty"`
	// ServiceIP is the address of the head's Service. If the Service is headless, that of the Pod.
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
	// RayClusterProvisioned: all Pods have been ready. It stays True until the cluster is suspended.
	RayClusterProvisioned = "RayClusterProvisioned"
	// ReplicaFailure: a Pod could not be created or deleted. Removed once all writes succeed.
	ReplicaFailure = "ReplicaFailure"
	// RayClusterSuspending: the Pods are being deleted. It completes even if the spec changes back.
	RayClusterSuspending = "RayClusterSuspending"
	// RayClusterSuspended: all Pods are deleted, because the user has suspended the cluster.
	RayClusterSuspended = "RayClusterSuspended"
)

// The reasons of conditions.
const (
	// ReasonHeadPodNotFound: there is no head Pod.
	ReasonHeadPodNotFound = "HeadPodNotFound"
	// ReasonHeadPodRunningAndReady: the head Pod is ready.
	ReasonHeadPodRunningAndReady = "HeadPodRunningAndReady"
	// ReasonUnknown: Kubernetes reports no reason.
	ReasonUnknown = "Unknown"
	// ReasonPodsProvisioning: not all Pods have been ready yet, or the cluster is suspended.
	ReasonPodsProvisioning = "RayClusterPodsProvisioning"
	// ReasonAllPodRunningAndReadyFirstTime: all Pods have been ready.
	ReasonAllPodRunningAndReadyFirstTime = "AllPodRunningAndReadyFirstTime"
	// ReasonSuspended: the user has suspended the cluster.
	ReasonSuspended = "RayClusterSuspended"
	// ReasonSuspending: the user is suspending the cluster.
	ReasonSuspending = "RayClusterSuspending"
	// ReasonFailedDeleteAllPods and the following are reasons of ReplicaFailure.
	ReasonFailedDeleteAllPods   = "FailedDeleteAllPods"
	ReasonFailedDeleteHeadPod   = "FailedDeleteHeadPod"
	ReasonFailedCreateHeadPod   = "FailedCreateHeadPod"
	ReasonFailedDeleteWorkerPod = "FailedDeleteWorkerPod"
	ReasonFailedCreateWorkerPod = "FailedCreateWorkerPod"
	// ReasonFailedUpdateRayCluster: the metadata of the RayCluster cannot be written. Not in KubeRay.
	ReasonFailedUpdateRayCluster = "FailedUpdateRayCluster"
	// ReasonFailedUpdatePod: a Pod of another controller cannot be adopted. Not in KubeRay.
	ReasonFailedUpdatePod = "FailedUpdatePod"
	// ReasonPodLimitExceeded: the spec has more Pods than a cluster may have, so none is created or
	// deleted. A reason of ReplicaFailure that KubeRay does not have.
	ReasonPodLimitExceeded = "PodLimitExceeded"
)
