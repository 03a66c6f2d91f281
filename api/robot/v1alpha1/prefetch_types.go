package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DefaultPrefetchRobots is maxRobots of RolloutPrefetchLimits that set none.
const DefaultPrefetchRobots = 10

// RolloutPrefetchLimits bound what robots fetch in advance.
type RolloutPrefetchLimits struct {
	// BytesPerSecond bounds how fast one robot fetches artifacts. It does not apply to images, which the
	// engine of the robot pulls. If empty, there is no bound.
	// +optional
	// +kubebuilder:validation:Minimum=1024
	// +kubebuilder:validation:Maximum=1099511627776
	BytesPerSecond *int64 `json:"bytesPerSecond,omitempty"`
	// MaxRobots is how many robots fetch at the same time. If empty, 10.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	MaxRobots *int32 `json:"maxRobots,omitempty"`
}

// RobotPrefetchOrder names what the robot should fetch now, for a Rollout that has spec.prefetch.
type RobotPrefetchOrder struct {
	// ID is the UID of the Rollout.
	// +kubebuilder:validation:MaxLength=64
	ID string `json:"id"`
	// Namespace of the Rollout.
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// Rollout is its name.
	// +kubebuilder:validation:MaxLength=253
	Rollout string `json:"rollout"`
	// Revision is the name of the ControllerRevision with what the tasks need.
	// +kubebuilder:validation:MaxLength=253
	Revision string `json:"revision"`
	// Groups of the revision whose tasks the robot would run.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	// +listType=atomic
	Groups []string `json:"groups"`
	// Attempt numbers the orders of the same Rollout, from 1. The next one follows a failure.
	// +kubebuilder:validation:Minimum=1
	Attempt int32 `json:"attempt"`
	// BytesPerSecond is that of the Rollout. If 0, there is no bound.
	// +optional
	BytesPerSecond int64 `json:"bytesPerSecond,omitempty"`
}

// The values of state of a RobotPrefetch.
const (
	PrefetchFetching = "Fetching"
	PrefetchDone     = "Done"
	PrefetchFailed   = "Failed"
)

// RobotPrefetch is what the robot reports about an order.
type RobotPrefetch struct {
	// ID is the UID of the Rollout.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	ID string `json:"id"`
	// Attempt is that of the order.
	// +optional
	Attempt int32 `json:"attempt,omitempty"`
	// State is Fetching, Done or Failed.
	// +kubebuilder:validation:Enum=Fetching;Done;Failed
	State string `json:"state"`
	// Message is why it failed.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Message string `json:"message,omitempty"`
	// Bytes that were downloaded. Contents that the robot had already, and images, do not count.
	// +optional
	Bytes int64 `json:"bytes,omitempty"`
	// At is when the server received the state.
	// +optional
	At *metav1.Time `json:"at,omitempty"`
}
