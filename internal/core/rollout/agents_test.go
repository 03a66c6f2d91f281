package rollout

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// agentsTo returns a Rollout of agents to v2 in a phase, with one wave that includes all.
func agentsTo(phase string) *v1alpha1.Rollout {
	r := rolloutWith(phase, EndPosition)
	r.Namespace, r.Status.Revision, r.Status.Version = "ns", 0, "v2"
	r.Spec.Target = v1alpha1.RolloutTarget{Kind: v1alpha1.TargetAgent, Agent: &v1alpha1.AgentRelease{
		Version: "v2", Artifacts: []v1alpha1.AgentArtifact{{OS: "linux", Arch: "amd64"}, {OS: "linux", Arch: "arm64", Source: "arm"}},
	}}
	return r
}

func updatingRobot() *v1alpha1.Robot {
	r := &v1alpha1.Robot{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "r1"}}
	r.Status.Agent = &v1alpha1.AgentInfo{Protocol: v1alpha1.ProtocolV2, Version: "v1", UpdatesItself: true}
	r.Status.DeviceInfo = &v1alpha1.DeviceInfo{Platform: &v1alpha1.Platform{OS: "linux", Arch: "arm64"}}
	return r
}

func TestFindAgentOrder(t *testing.T) {
	const progressing, reverting = v1alpha1.RolloutProgressing, v1alpha1.RolloutReverting
	report := func(rollout string, try int32, isRevert bool, state string) *v1alpha1.AgentUpdate {
		return &v1alpha1.AgentUpdate{Rollout: rollout, Try: try, IsRevert: isRevert, State: state}
	}
	for _, c := range []struct {
		name   string
		phase  string
		change func(*v1alpha1.Rollout, *v1alpha1.Robot)
		want   string // "", "update" or "revert"
	}{
		{"another version", progressing, func(*v1alpha1.Rollout, *v1alpha1.Robot) {}, "update"},
		{"the version", progressing, func(_ *v1alpha1.Rollout, r *v1alpha1.Robot) { r.Status.Agent.Version = "v2" }, ""},
		{"not admitted", progressing, func(r *v1alpha1.Rollout, _ *v1alpha1.Robot) { r.Status.Waves[0].AdmittedBound = 0 }, ""},
		{"paused", v1alpha1.RolloutPaused, func(*v1alpha1.Rollout, *v1alpha1.Robot) {}, ""},
		{"a robot that is only shared with the namespace", progressing, func(_ *v1alpha1.Rollout, r *v1alpha1.Robot) {
			r.Namespace, r.Labels = "other", map[string]string{v1alpha1.ShareLabelPrefix + "ns": ""}
		}, ""},
		{"not selected", progressing, func(r *v1alpha1.Rollout, _ *v1alpha1.Robot) {
			r.Spec.RobotSelector = map[string]string{"site": "lab"}
		}, ""},
		{"selected by a label of the spec", progressing, func(r *v1alpha1.Rollout, robot *v1alpha1.Robot) {
			r.Spec.RobotSelector, robot.Spec.Labels = map[string]string{"site": "lab"}, map[string]string{"site": "lab"}
		}, "update"},
		{"no agent", progressing, func(_ *v1alpha1.Rollout, r *v1alpha1.Robot) { r.Status.Agent = nil }, ""},
		{"a legacy agent", progressing, func(_ *v1alpha1.Rollout, r *v1alpha1.Robot) { r.Status.Agent.Protocol = v1alpha1.ProtocolV1 }, ""},
		{"no key", progressing, func(_ *v1alpha1.Rollout, r *v1alpha1.Robot) { r.Status.Agent.UpdatesItself = false }, ""},
		{"another platform", progressing, func(_ *v1alpha1.Rollout, r *v1alpha1.Robot) { r.Status.DeviceInfo.Platform.Arch = "riscv64" }, ""},
		{"no platform", progressing, func(_ *v1alpha1.Rollout, r *v1alpha1.Robot) { r.Status.DeviceInfo = nil }, ""},
		{"it downloads", progressing, func(_ *v1alpha1.Rollout, r *v1alpha1.Robot) {
			r.Status.Agent.Update = report("uid", 0, false, v1alpha1.AgentUpdateDownloading)
		}, ""},
		{"it waits", progressing, func(_ *v1alpha1.Rollout, r *v1alpha1.Robot) {
			r.Status.Agent.Update = report("uid", 0, false, v1alpha1.AgentUpdateWaiting)
		}, "update"},
		{"it has failed", progressing, func(_ *v1alpha1.Rollout, r *v1alpha1.Robot) {
			r.Status.Agent.Update = report("uid", 0, false, v1alpha1.AgentUpdateFailed)
		}, ""},
		{"it has failed before the retry", progressing, func(o *v1alpha1.Rollout, r *v1alpha1.Robot) {
			o.Status.Waves[0].Retries, r.Status.Agent.Update = 1, report("uid", 0, false, v1alpha1.AgentUpdateFailed)
		}, "update"},
		{"it has failed for another Rollout", progressing, func(_ *v1alpha1.Rollout, r *v1alpha1.Robot) {
			r.Status.Agent.Update = report("other", 0, false, v1alpha1.AgentUpdateFailed)
		}, "update"},
		{"a person has gone back to another version", progressing, func(_ *v1alpha1.Rollout, r *v1alpha1.Robot) {
			r.Status.Agent.Update = report("uid", 0, false, v1alpha1.AgentUpdateSettled)
		}, ""},
		{"reverting without an update", reverting, func(*v1alpha1.Rollout, *v1alpha1.Robot) {}, ""},
		{"reverting one that had the version", reverting, func(_ *v1alpha1.Rollout, r *v1alpha1.Robot) { r.Status.Agent.Version = "v2" }, ""},
		{"reverting one that was updated", reverting, func(_ *v1alpha1.Rollout, r *v1alpha1.Robot) {
			r.Status.Agent.Version, r.Status.Agent.Update = "v2", report("uid", 0, false, v1alpha1.AgentUpdateSettled)
		}, "revert"},
		{"reverting one that lost its key", reverting, func(_ *v1alpha1.Rollout, r *v1alpha1.Robot) {
			r.Status.Agent.UpdatesItself = false
			r.Status.Agent.Version, r.Status.Agent.Update = "v2", report("uid", 0, false, v1alpha1.AgentUpdateSettled)
		}, "revert"},
		{"reverting one that downloads", reverting, func(_ *v1alpha1.Rollout, r *v1alpha1.Robot) {
			r.Status.Agent.Update = report("uid", 0, false, v1alpha1.AgentUpdateDownloading)
		}, "revert"},
		{"reverting one that failed", reverting, func(_ *v1alpha1.Rollout, r *v1alpha1.Robot) {
			r.Status.Agent.Update = report("uid", 0, false, v1alpha1.AgentUpdateFailed)
		}, ""},
		{"a revert that waits", reverting, func(_ *v1alpha1.Rollout, r *v1alpha1.Robot) {
			r.Status.Agent.Version, r.Status.Agent.Update = "v2", report("uid", 0, true, v1alpha1.AgentUpdateWaiting)
		}, "revert"},
		{"a revert that goes on", reverting, func(_ *v1alpha1.Rollout, r *v1alpha1.Robot) {
			r.Status.Agent.Version, r.Status.Agent.Update = "v2", report("uid", 0, true, v1alpha1.AgentUpdateTrying)
		}, ""},
		{"a revert that has failed", reverting, func(_ *v1alpha1.Rollout, r *v1alpha1.Robot) {
			r.Status.Agent.Version, r.Status.Agent.Update = "v2", report("uid", 0, true, v1alpha1.AgentUpdateFailed)
		}, ""},
	} {
		r, robot := agentsTo(c.phase), updatingRobot()
		c.change(r, robot)
		got, o := "", FindAgentOrder(r, robot)
		switch {
		case o == nil:
		case o.IsRevert:
			got = "revert"
		default:
			got = "update"
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
		if o != nil && (o.Rollout != "uid" || o.Version != "v2" || (o.Artifact != nil && o.Artifact.Source == "arm") == o.IsRevert || o.Try != r.Status.Waves[0].Retries) {
			t.Errorf("%s: order %+v", c.name, o)
		}
	}
	if FindAgentOrder(nil, updatingRobot()) != nil {
		t.Error("an order without a Rollout")
	}
}

func TestFindEffectiveAgents(t *testing.T) {
	start := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	with := func(name string, age time.Duration, change func(*v1alpha1.Rollout)) *v1alpha1.Rollout {
		r := agentsTo(v1alpha1.RolloutProgressing)
		r.Name, r.UID, r.CreationTimestamp = name, types.UID(name), metav1.NewTime(start.Add(-age))
		if change != nil {
			change(r)
		}
		return r
	}
	for name, change := range map[string]func(*v1alpha1.Rollout){
		"of a Job":    func(r *v1alpha1.Rollout) { r.Spec.Target = v1alpha1.RolloutTarget{Name: "j"} },
		"not started": func(r *v1alpha1.Rollout) { r.Status.Version = "" },
		"superseded":  func(r *v1alpha1.Rollout) { r.Status.Phase = v1alpha1.RolloutSuperseded },
	} {
		newer := with("newer", 0, change)
		if got := FindEffectiveAgents([]*v1alpha1.Rollout{newer, with("a", time.Minute, nil), with("b", time.Hour, nil)}); got == nil || got.Name != "a" {
			t.Errorf("a newer one is %s: %v decides", name, got)
		}
		if got := FindEffectiveAgents([]*v1alpha1.Rollout{newer}); got != nil {
			t.Errorf("one that is %s decides", name)
		}
	}
}

// A Job may have any name. Its Rollouts are not those of agents.
func TestTargetKey_SeparatesAgentsFromJobs(t *testing.T) {
	agents, job := agentsTo(v1alpha1.RolloutProgressing), rolloutWith(v1alpha1.RolloutProgressing)
	job.Spec.Target.Name = "agent"
	if a, j := TargetKey(agents), TargetKey(job); a == j || j != "agent" || a == "" {
		t.Errorf("agents %q, job %q", a, j)
	}
	j := &v1alpha1.Job{}
	if got := FindEffective([]v1alpha1.Rollout{*agents}, j); got != nil {
		t.Errorf("%s decides for a job without a UID", got.Name)
	}
}
