package rollout

import (
	"k8s.io/apimachinery/pkg/types"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/robotattr"
)

// AgentsKey is the TargetKey of the agents of a namespace. No Job can have this name.
const AgentsKey = "Agent/"

// TargetKey returns what a Rollout changes, within its namespace: the name of a Job, or a text for its agents
// that is no name.
func TargetKey(r *v1alpha1.Rollout) string {
	if r.Spec.Target.IsAgent() {
		return AgentsKey
	}
	return r.Spec.Target.Name
}

// HasStarted reports whether a Rollout has found what it changes its units to.
func HasStarted(r *v1alpha1.Rollout) bool { return r.Status.Revision != 0 || r.Status.Version != "" }

// FindEffectiveAgents returns the Rollout that decides for the agents of a namespace: the newest one that has
// started. It returns nil if there is none. All must be of the namespace.
func FindEffectiveAgents(all []*v1alpha1.Rollout) *v1alpha1.Rollout {
	var newest *v1alpha1.Rollout
	for _, r := range all {
		if !r.Spec.Target.IsAgent() || r.Spec.Target.Agent == nil || r.Status.Version == "" || r.Status.Phase == v1alpha1.RolloutSuperseded {
			continue
		}
		if newest == nil || IsNewer(r, newest) {
			newest = r
		}
	}
	return newest
}

// SelectsRobot reports whether a robot is a unit of a Rollout of agents: it is in the namespace of the Rollout,
// and not only shared with it, and has the labels of the robotSelector.
func SelectsRobot(r *v1alpha1.Rollout, robot *v1alpha1.Robot) bool {
	return robot.Namespace == r.Namespace && robot.DeletionTimestamp == nil && robotattr.HasLabels(robotattr.TaskVisibleLabels(robot), r.Spec.RobotSelector)
}

// Reasons why an agent cannot be updated by a Rollout.
const (
	// ReasonUpdatesDisabled is the reason of a robot without a key for updates, or with an earlier agent.
	ReasonUpdatesDisabled = "UpdatesDisabled"
	// ReasonNoArtifact is the reason of a robot for whose platform the Rollout has no program.
	ReasonNoArtifact = "NoArtifact"
)

// Obstacle is why an agent cannot be updated by a Rollout. The zero value means that it can.
type Obstacle struct{ Reason, Message string }

// FindObstacle returns why a robot cannot be updated, by what its agent has registered.
func FindObstacle(r *v1alpha1.Rollout, robot *v1alpha1.Robot) Obstacle {
	agent := robot.Status.Agent
	switch {
	case agent == nil || agent.Protocol != v1alpha1.ProtocolV2:
		return Obstacle{ReasonUpdatesDisabled, "its agent is a legacy agent, which cannot update itself; replace it by hand"}
	case !agent.UpdatesItself:
		return Obstacle{ReasonUpdatesDisabled, "its agent does not update itself; set update.publicKeys in the policy file of the robot, or update its agent by hand if that is too old to know the field"}
	}
	if os, arch := platformOf(robot); r.Spec.Target.Agent.FindArtifact(os, arch) == nil {
		return Obstacle{ReasonNoArtifact, "spec.target.agent.artifacts has no program for " + os + "/" + arch + "; create a Rollout that has one"}
	}
	return Obstacle{}
}

func platformOf(robot *v1alpha1.Robot) (os, arch string) {
	if d := robot.Status.DeviceInfo; d != nil && d.Platform != nil {
		return d.Platform.OS, d.Platform.Arch
	}
	return "unknown", "unknown"
}

// AgentOrder is what a robot should do with its agent because of a Rollout.
type AgentOrder struct {
	// Rollout is the UID of the Rollout.
	Rollout types.UID
	// Try is the number of retries of the robot's wave. An agent acts once for each.
	Try int32
	// IsRevert is true if the robot should leave Version, and return to the version that it had before the
	// Rollout updated it.
	IsRevert bool
	Version  string
	// Artifact is the program of Version. Nil for a revert.
	Artifact *v1alpha1.AgentArtifact
}

// IsAnsweredBy reports whether an agent has reported about the order, in any state.
func (o *AgentOrder) IsAnsweredBy(u *v1alpha1.AgentUpdate) bool {
	return u != nil && u.Rollout == string(o.Rollout) && u.IsRevert == o.IsRevert && u.Try >= o.Try
}

// FindAgentOrder returns what a robot should do because of the effective Rollout of its namespace, as its status
// has it. It returns nil if there is nothing to do, or if the robot acts by the order already, or has. One that
// waits needs the order again: it does not begin by itself. R may be nil.
func FindAgentOrder(r *v1alpha1.Rollout, robot *v1alpha1.Robot) *AgentOrder {
	if r == nil || robot.Status.Agent == nil || !SelectsRobot(r, robot) {
		return nil
	}
	o := &AgentOrder{Rollout: r.UID, Version: r.Status.Version}
	switch u := (Unit{Name: robot.Name, Labels: robotattr.TaskVisibleLabels(robot)}); Decide(r, u) {
	case Target:
		if robot.Status.Agent.Version == o.Version || FindObstacle(r, robot) != (Obstacle{}) {
			return nil
		}
		os, arch := platformOf(robot)
		o.Try, o.Artifact = r.Status.Waves[FindWave(r, u)].Retries, r.Spec.Target.Agent.FindArtifact(os, arch)
	case Base:
		if !NeedsRevert(r, robot.Status.Agent) {
			return nil
		}
		o.IsRevert = true
	default:
		return nil
	}
	if u := robot.Status.Agent.Update; o.IsAnsweredBy(u) && u.State != v1alpha1.AgentUpdateWaiting {
		return nil
	}
	return o
}

// NeedsRevert reports whether an agent has the version of a Rollout because of that Rollout, or is about to get
// it. One that had the version before keeps it. One that cannot go back has reported that.
func NeedsRevert(r *v1alpha1.Rollout, agent *v1alpha1.AgentInfo) bool {
	if agent == nil || agent.Update == nil || agent.Update.Rollout != string(r.UID) {
		return false
	}
	u := agent.Update
	if u.IsRevert {
		return u.State != v1alpha1.AgentUpdateFailed && u.State != v1alpha1.AgentUpdateSettled
	}
	isChanging := u.State != v1alpha1.AgentUpdateFailed && u.State != v1alpha1.AgentUpdateSettled
	return isChanging || agent.Version == r.Status.Version
}
