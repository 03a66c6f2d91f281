package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// The values of spec.target.kind of a Rollout. Empty means TargetJob.
const (
	TargetJob   = "Job"
	TargetAgent = "Agent"
)

// IsAgent reports whether a Rollout updates the agents of robots, and not the tasks of a Job.
func (t *RolloutTarget) IsAgent() bool { return t.Kind == TargetAgent }

// AgentRelease is a version of k8s4r-agent, for each platform of the robots.
type AgentRelease struct {
	// Version is what the program prints with --version.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[0-9A-Za-z][0-9A-Za-z._+-]*$`
	Version string `json:"version"`
	// Artifacts are the programs, at most one for each platform. A robot whose platform is missing fails.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +listType=map
	// +listMapKey=os
	// +listMapKey=arch
	Artifacts []AgentArtifact `json:"artifacts"`
}

// AgentArtifact is the program for one platform. A robot runs it only if a key of its policy file has signed
// version, os, arch, size and sha256.
type AgentArtifact struct {
	// OS of the program, as in GOOS, such as linux.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:Pattern=`^[0-9a-z]+$`
	OS string `json:"os"`
	// Arch of the program, as in GOARCH, such as arm64.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:Pattern=`^[0-9a-z]+$`
	Arch string `json:"arch"`
	// Source is the URL from which the robots download the program, with the scheme http or https.
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:Pattern=`^https?://[^\s]+$`
	Source string `json:"source"`
	// Size of the program in bytes.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=268435456
	Size int64 `json:"size"`
	// SHA256 of the program, in hexadecimal digits.
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
	SHA256 string `json:"sha256"`
	// Signature is Ed25519, in base64, as k8s4r agent-key sign makes it.
	// +kubebuilder:validation:MaxLength=88
	// +kubebuilder:validation:Pattern=`^[0-9A-Za-z+/]{86}==$`
	Signature string `json:"signature"`
}

// FindArtifact returns the program for a platform, or nil.
func (r *AgentRelease) FindArtifact(os, arch string) *AgentArtifact {
	for i := range r.Artifacts {
		if a := &r.Artifacts[i]; a.OS == os && a.Arch == arch {
			return a
		}
	}
	return nil
}

// The states of AgentUpdate.
const (
	// AgentUpdateWaiting: the agent has the order and may not begin now. The server repeats the order.
	AgentUpdateWaiting = "Waiting"
	// AgentUpdateDownloading: the agent downloads and verifies the program.
	AgentUpdateDownloading = "Downloading"
	// AgentUpdateTrying: the new version runs and tests itself.
	AgentUpdateTrying = "Trying"
	// AgentUpdateSettled: the new version has passed its test, or the agent is back at the version of before.
	AgentUpdateSettled = "Settled"
	// AgentUpdateFailed: the robot stays with the version that it had.
	AgentUpdateFailed = "Failed"
)

// AgentUpdate is what an agent last reported about an order of a Rollout to update it.
type AgentUpdate struct {
	// Rollout is the UID of the Rollout.
	// +kubebuilder:validation:MaxLength=64
	Rollout string `json:"rollout"`
	// Try is the number of retries of the wave that the order was sent with.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Try int32 `json:"try,omitempty"`
	// IsRevert is true if the order was to return to the version of before.
	// +optional
	IsRevert bool `json:"isRevert,omitempty"`
	// Version that the robot was updated to, also for a revert.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Version string `json:"version,omitempty"`
	// State of the update.
	// +kubebuilder:validation:Enum=Waiting;Downloading;Trying;Settled;Failed
	State string `json:"state"`
	// Message explains the state to people.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Message string `json:"message,omitempty"`
	// At is since when the update has this state, by the robot's clock.
	// +optional
	At *metav1.Time `json:"at,omitempty"`
}
