package wire

import "time"

// AgentOrder asks an agent to replace its program because of a Rollout. It is repeated until the agent reports
// another state than AgentWaiting about it in a registration (AgentUpdate). The agent acts once for each Rollout,
// Try and IsRevert.
type AgentOrder struct {
	// Rollout is the UID of the Rollout.
	Rollout string `json:"rollout"`
	// Try is the number of retries of the robot's wave.
	Try int32 `json:"try,omitempty"`
	// IsRevert asks an agent that this Rollout has updated to Version, or is updating, to return to the version
	// that it had before.
	IsRevert bool   `json:"isRevert,omitempty"`
	Version  string `json:"version"`
	// Artifact is the program of Version. Nil for a revert.
	Artifact *AgentArtifact `json:"artifact,omitempty"`
	// WindowSeconds is for how long the agent may begin to restart, from the receipt of the order. 0: no
	// maintenance window limits it.
	WindowSeconds int64 `json:"windowSeconds,omitempty"`
}

// IsWithinLimits reports whether an agent can report about the order.
func (o AgentOrder) IsWithinLimits() bool {
	return o.Rollout != "" && len(o.Rollout) <= maxUID && o.Try >= 0 && o.Try <= MaxUpdateTry &&
		o.Version != "" && len(o.Version) <= maxAgentVersion && o.WindowSeconds >= 0 && o.WindowSeconds <= maxWindowSeconds
}

// AgentArtifact is a program with what its signature binds, together with the version.
type AgentArtifact struct {
	// OS and Arch are as in GOOS and GOARCH.
	OS   string `json:"os"`
	Arch string `json:"arch"`
	// Source is the http or https URL of the program.
	Source string `json:"source"`
	// Size of the program in bytes.
	Size int64 `json:"size"`
	// SHA256 of the program, in hexadecimal digits.
	SHA256 string `json:"sha256"`
	// Signature is Ed25519, in base64. The agent verifies it with the keys of its policy file.
	Signature string `json:"signature"`
}

// The states of AgentUpdate.
const (
	// AgentWaiting: the agent has the order and may not begin now, because the robot is held or the maintenance
	// window is over. It forgets the order, and begins when one is repeated at a time at which it may.
	AgentWaiting = "Waiting"
	// AgentDownloading: the agent downloads and verifies the program.
	AgentDownloading = "Downloading"
	// AgentTrying: the version that registers tests itself.
	AgentTrying = "Trying"
	// AgentSettled: the version has passed its test or, after a revert, the agent has the version of before.
	AgentSettled = "Settled"
	// AgentFailed: the robot stays with the version that it had.
	AgentFailed = "Failed"
)

// AgentUpdate is what an agent reports about the last AgentOrder. It survives restarts of the agent from
// AgentTrying on; an agent that registers without it gets the order again.
type AgentUpdate struct {
	// Rollout, Try, IsRevert and Version are those of the order.
	Rollout  string `json:"rollout"`
	Try      int32  `json:"try,omitempty"`
	IsRevert bool   `json:"isRevert,omitempty"`
	Version  string `json:"version"`
	// State is one of the constants above.
	State string `json:"state"`
	// Message explains AgentWaiting and AgentFailed to people.
	Message string `json:"message,omitempty"`
	// At is since when the update has the state, by the robot's clock.
	At time.Time `json:"at"`
}

// The bounds of an AgentUpdate.
const (
	// MaxUpdateMessage bounds AgentUpdate.Message, in bytes.
	MaxUpdateMessage = 256
	// MaxUpdateTry bounds AgentUpdate.Try. It exceeds the number of retries of a wave.
	MaxUpdateTry    = 1000
	maxAgentVersion = 64
	// maxWindowSeconds bounds AgentOrder.WindowSeconds: a year.
	maxWindowSeconds = 366 * 24 * 60 * 60
)

// WithinLimits returns the report with its texts cut. It returns nil for one without a Rollout or with an unknown
// state. A nil report stays nil.
func (u *AgentUpdate) WithinLimits() *AgentUpdate {
	if u == nil || u.Rollout == "" || len(u.Rollout) > maxUID {
		return nil
	}
	switch u.State {
	case AgentWaiting, AgentDownloading, AgentTrying, AgentSettled, AgentFailed:
	default:
		return nil
	}
	out := *u
	out.Try = min(max(u.Try, 0), MaxUpdateTry)
	out.Version, out.Message = TruncateText(u.Version, maxAgentVersion), cleanText(u.Message, MaxUpdateMessage)
	return &out
}
