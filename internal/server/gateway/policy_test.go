package gateway

import (
	"strings"
	"testing"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/protocol/policy"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// registering returns the state of a robot that has registered a policy.
func registering(p *policy.Policy) robotState {
	return seenAt(0, func(w *robotState) {
		w.recordRegistration(clock, robotv1.ProtocolV2, wire.Register{AgentVersion: "1", DeviceInfo: device(1), Policy: p})
	})
}

func TestPlanRobot_StoresPolicy(t *testing.T) {
	r := newKnownRobot("Online")
	apply := func(w robotState) *robotv1.RobotPolicy {
		if s := planRobot(clock, "r1", w, r, period); s.status != nil {
			r.Status = *s.status
		}
		return r.Status.Policy
	}
	if got := apply(registering(&policy.Policy{Allow: policy.Rules{Drivers: []string{"exec"}}})); got == nil || len(got.Allow.Drivers) != 1 {
		t.Errorf("stored %+v", got)
	}
	if got := apply(seenAt(0, func(w *robotState) { *w = robotState{lastSeen: clock, heartbeatSeq: 1} })); got == nil {
		t.Error("a heartbeat removes the policy")
	}
	// An empty list allows nothing, and a missing one everything.
	if got := apply(registering(&policy.Policy{Allow: policy.Rules{Drivers: []string{"exec"}, Mounts: []string{}}})); got == nil || got.Allow.Mounts == nil {
		t.Errorf("stored %+v, want an empty list of mounts", got)
	}
	if got := apply(registering(&policy.Policy{Allow: policy.Rules{Drivers: []string{"exec"}}})); got == nil || got.Allow.Mounts != nil {
		t.Errorf("stored %+v, want no list of mounts", got)
	}
	if got := apply(registering(nil)); got != nil {
		t.Errorf("stored %+v after a registration without a policy", got)
	}
}

func TestPlanRobot_BoundsPolicy(t *testing.T) {
	for name, in := range map[string]*policy.Policy{
		"many entries": {Allow: policy.Rules{Users: make([]string, 100_000)}},
		"long entries": {Allow: policy.Rules{Users: []string{strings.Repeat("x", 100_000)}}},
		"a long text":  {Problem: strings.Repeat("x", 100_000)},
		"no rules":     {},
	} {
		got := planRobot(clock, "r1", registering(in), newKnownRobot("Online"), period).status.Policy
		if got == nil || !strings.Contains(got.Problem, "registered a policy that is not valid") || len(got.Problem) > policy.MaxProblem || got.Allow.Users != nil {
			t.Errorf("%s: stored %.300v", name, got)
		}
	}
}
