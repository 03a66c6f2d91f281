package gateway

import (
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/rollout"
	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/testkit/simrobot"
)

// newAgentRollout returns a Rollout of agents to v2 that includes all robots of the namespace.
func newAgentRollout(name, phase string) *robotv1.Rollout {
	r := &robotv1.Rollout{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-" + name), CreationTimestamp: metav1.NewTime(clock)}}
	r.Spec.Target = robotv1.RolloutTarget{Kind: robotv1.TargetAgent, Agent: &robotv1.AgentRelease{
		Version: "v2", Artifacts: []robotv1.AgentArtifact{{OS: "linux", Arch: "amd64", Source: "https://example.com/agent", Size: 5, SHA256: "0a", Signature: "sig"}},
	}}
	r.Spec.Waves = []robotv1.RolloutWave{{Name: "all", Percent: new(int32(100))}}
	r.Status.Phase, r.Status.Version = phase, "v2"
	r.Status.Waves = []robotv1.RolloutWaveStatus{{Name: "all", Bound: rollout.EndPosition, AdmittedBound: rollout.EndPosition}}
	return r
}

func (s *system) changeRollout(r *robotv1.Rollout, change func(*robotv1.RolloutStatus)) {
	s.t.Helper()
	change(&r.Status)
	if err := s.api.Update(s.t.Context(), r); err != nil {
		s.t.Fatal(err)
	}
}

// The whole way of an order: an update that fails, a retry that succeeds, and a revert.
func TestGateway_OrdersAgentsToUpdate(t *testing.T) {
	s := start(t)
	s.approveRobots()
	robot := s.startRobot(simrobot.Config{RobotID: "r1", AgentVersion: "v1", UpdatesItself: true, OnAgentOrder: func(o wire.AgentOrder) (state, version string) {
		switch {
		case o.IsRevert:
			return wire.AgentSettled, "v1"
		case o.Try == 0:
			return wire.AgentFailed, ""
		}
		return wire.AgentTrying, o.Version
	}})
	defer robot.Stop()
	unable := s.startRobot(simrobot.Config{RobotID: "r2", AgentVersion: "v1"})
	defer unable.Stop()
	r := newAgentRollout("r", robotv1.RolloutProgressing)
	if err := s.api.Create(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	isInState := func(try int32, isRevert bool, state, version string) func() bool {
		return func() bool {
			a := s.robot("r1").Status.Agent
			return a.Version == version && a.Update != nil && a.Update.Rollout == string(r.UID) && a.Update.Try == try && a.Update.IsRevert == isRevert && a.Update.State == state
		}
	}
	eventually(t, "the failure is written", isInState(0, false, robotv1.AgentUpdateFailed, "v1"))
	s.changeRollout(r, func(st *robotv1.RolloutStatus) { st.Waves[0].Retries = 1 })
	eventually(t, "the new version is tested", isInState(1, false, robotv1.AgentUpdateTrying, "v2"))
	robot.ReportUpdate(wire.AgentUpdate{Rollout: string(r.UID), Try: 1, Version: "v2", State: wire.AgentSettled}, "")
	eventually(t, "it has settled", isInState(1, false, robotv1.AgentUpdateSettled, "v2"))
	s.changeRollout(r, func(st *robotv1.RolloutStatus) { st.Phase = robotv1.RolloutReverting })
	eventually(t, "it is back", isInState(0, true, robotv1.AgentUpdateSettled, "v1"))
	want := []string{"try 0, revert false, v2 of https://example.com/agent", "try 1, revert false, v2 of https://example.com/agent", "try 0, revert true, v2 of nothing"}
	var got []string
	for _, o := range robot.AgentOrders() {
		source := "nothing"
		if o.Artifact != nil {
			source = o.Artifact.Source
		}
		got = append(got, fmt.Sprintf("try %d, revert %v, %s of %s", o.Try, o.IsRevert, o.Version, source))
	}
	if !slices.Equal(got, want) {
		t.Errorf("orders %q, want %q", got, want)
	}
	if n := len(unable.AgentOrders()); n != 0 || s.robot("r2").Status.Agent.UpdatesItself || !s.robot("r1").Status.Agent.UpdatesItself {
		t.Errorf("%d orders for an agent that does not update itself", n)
	}
}

// orderBench is a gateway without workers, with a clock that the test moves.
type orderBench struct {
	*Gateway
	t   *testing.T
	now time.Time
}

func newOrderBench(t *testing.T, r *robotv1.Robot) *orderBench {
	b := &orderBench{Gateway: newSweepingGateway(t, r), t: t, now: clock}
	b.Gateway.now = func() time.Time { return b.now }
	b.mqtt.nextConnection()
	return b
}

// orders handles the queue, and returns the number of orders that were sent.
func (b *orderBench) orders() int {
	b.t.Helper()
	for b.orderQueue.Len() > 0 {
		id, _ := b.orderQueue.Get()
		if err := b.sendAgentOrder(b.t.Context(), id); err != nil {
			b.t.Fatal(err)
		}
		b.orderQueue.Done(id)
	}
	return len(takeConnections(b.mqtt))
}

func (b *orderBench) register(u *wire.AgentUpdate) {
	b.t.Helper()
	err := b.registerRobot("r1", robotv1.ProtocolV2, wire.Register{RobotID: "r1", AgentVersion: "v1", UpdatesItself: true, AgentUpdate: u, DeviceInfo: amd64()})
	if err != nil {
		b.t.Fatal(err)
	}
	takeConnections(b.mqtt)
}

func (b *orderBench) beat() {
	b.recordHeartbeat("r1", robotv1.ProtocolV2, wire.Heartbeat{}, b.objects.robot("r1"))
	takeConnections(b.mqtt)
}

func amd64() *wire.DeviceInfo {
	return &wire.DeviceInfo{Platform: &wire.Platform{OS: "linux", Arch: "amd64"}}
}

func TestAgentOrders_AreRepeatedUntilTheAgentReports(t *testing.T) {
	b := newOrderBench(t, newKnownRobot("Online"))
	b.handleRolloutUpdate(newAgentRollout("r", robotv1.RolloutProgressing))
	if n := b.orders(); n != 0 {
		t.Fatalf("%d orders before a message of the robot", n)
	}
	report := func(state string) *wire.AgentUpdate {
		return &wire.AgentUpdate{Rollout: "uid-r", Version: "v2", State: state}
	}
	for _, step := range []struct {
		name string
		act  func()
		want int
	}{
		{"it registers", func() { b.register(nil) }, 1},
		{"a heartbeat follows at once", b.beat, 0},
		{"a heartbeat follows when the order is to be repeated", func() { b.now = b.now.Add(agentOrderRepeat); b.beat() }, 1},
		{"it registers again without a report", func() { b.register(nil) }, 0},
		{"it registers again later without a report", func() { b.now = b.now.Add(agentOrderGap); b.register(nil) }, 1},
		{"it waits", func() { b.register(report(wire.AgentWaiting)) }, 0},
		{"it still waits when the order is to be repeated", func() { b.now = b.now.Add(agentOrderRepeat); b.beat() }, 1},
		{"it downloads", func() { b.now = b.now.Add(agentOrderRepeat); b.register(report(wire.AgentDownloading)) }, 0},
		{"it restarts and has forgotten the order", func() { b.register(nil) }, 1},
		{"it has failed", func() { b.now = b.now.Add(agentOrderRepeat); b.register(report(wire.AgentFailed)) }, 0},
		{"it disconnects", func() {
			b.robots.updateState("r1", true, func(w *robotState) { w.disconnectReason = robotv1.ReasonLastWill })
			b.enqueueAgent("r1")
		}, 0},
	} {
		step.act()
		if n := b.orders(); n != step.want {
			t.Errorf("%s: %d orders, want %d", step.name, n, step.want)
		}
	}
}

func TestAgentOrders_AreOnlyForRobotsThatMayGetThem(t *testing.T) {
	for _, c := range []struct {
		name    string
		robot   func(*robotv1.Robot)
		rollout func(*robotv1.Rollout)
		want    int
	}{
		{"of the namespace", nil, nil, 1},
		{"revoked", func(r *robotv1.Robot) { r.Spec.Identity = &robotv1.RobotIdentitySpec{Revoked: true} }, nil, 0},
		{"not approved", func(r *robotv1.Robot) { r.Status.Phase = "Pending" }, nil, 0},
		{"of another namespace", nil, func(r *robotv1.Rollout) { r.Namespace = "other" }, 0},
		{"superseded", nil, func(r *robotv1.Rollout) { r.Status.Phase = robotv1.RolloutSuperseded }, 0},
		{"of a Job", nil, func(r *robotv1.Rollout) { r.Spec.Target = robotv1.RolloutTarget{Name: "j"} }, 0},
	} {
		robot, r := newKnownRobot("Online"), newAgentRollout("r", robotv1.RolloutProgressing)
		if c.robot != nil {
			c.robot(robot)
		}
		if c.rollout != nil {
			c.rollout(r)
		}
		b := newOrderBench(t, robot)
		b.handleRolloutUpdate(r)
		b.register(nil)
		if n := b.orders(); n != c.want {
			t.Errorf("%s: %d orders, want %d", c.name, n, c.want)
		}
		b.handleRolloutDelete(r)
		b.register(nil)
		if n := b.orders(); n != 0 {
			t.Errorf("%s: %d orders of a deleted Rollout", c.name, n)
		}
	}
}

func TestAgentOrders_WaitForTheMaintenanceWindow(t *testing.T) {
	b := newOrderBench(t, newKnownRobot("Online"))
	closed := &robotv1.MaintenanceWindow{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "w", UID: "w", Generation: 1}}
	closed.Spec.Schedule, closed.Spec.Duration = fmt.Sprintf("%d %d * * *", clock.Minute(), (clock.Hour()+12)%24), "1h"
	b.Gateway.orders.windows.store(closed)
	r := newAgentRollout("r", robotv1.RolloutProgressing)
	b.handleRolloutUpdate(r)
	b.register(nil)
	if n := b.orders(); n != 0 {
		t.Errorf("%d orders while the window is closed", n)
	}
	open := closed.DeepCopy()
	open.Spec.Schedule, open.Generation = fmt.Sprintf("%d %d * * *", clock.Minute(), clock.Hour()), 2
	b.Gateway.orders.windows.store(open)
	b.beat()
	o := b.dueAgentOrder("r1")
	if o == nil {
		t.Fatal("no order while the window is open")
	}
	left := int64(clock.Add(time.Hour).Sub(b.now) / time.Second)
	if m, isOpen := b.newAgentOrder(b.objects.robot("r1"), o); m.WindowSeconds != left || left < 1 || !isOpen {
		t.Errorf("the agent may act for %ds, want %d", m.WindowSeconds, left)
	}
	again := closed.DeepCopy()
	again.Generation = 3
	b.Gateway.orders.windows.store(again)
	if o := b.dueAgentOrder("r1"); o != nil {
		t.Error("there is an order after the window has closed")
	}
	r.Spec.IgnoreWindows = true
	if o = b.dueAgentOrder("r1"); o == nil {
		t.Fatal("a Rollout that ignores windows waits for them")
	}
	if m, isOpen := b.newAgentOrder(b.objects.robot("r1"), o); m.WindowSeconds != 0 || !isOpen {
		t.Error("a window limits an order that ignores windows")
	}
}

func TestAgentOrders_LegacyAgentsGetNone(t *testing.T) {
	w := robotState{}
	w.recordRegistration(clock, robotv1.ProtocolV1, wire.Register{UpdatesItself: true, AgentUpdate: &wire.AgentUpdate{Rollout: "uid", State: wire.AgentTrying}})
	if a := agentInfo(w); a.UpdatesItself || a.Update != nil {
		t.Errorf("a legacy agent has %+v", a)
	}
}

// A newer Rollout decides for all agents of a namespace once it has started.
func TestAgentRollouts_NewestDecides(t *testing.T) {
	a := newAgentRollouts()
	first, second := newAgentRollout("a", robotv1.RolloutProgressing), newAgentRollout("b", robotv1.RolloutPending)
	second.CreationTimestamp, second.Status.Version = metav1.NewTime(clock.Add(time.Minute)), ""
	if !a.store(first) || a.store(second) {
		t.Error("changes: want the first only")
	}
	if e := a.effective(namespace); e != first {
		t.Errorf("%s decides before the second has started", e.Name)
	}
	started := second.DeepCopy()
	started.Status.Version = "v2"
	if !a.store(started) || a.effective(namespace) != started || a.effective("other") != nil {
		t.Error("the newest does not decide")
	}
	counted := started.DeepCopy()
	counted.Status.Counts.Updated = 1
	if a.store(counted) {
		t.Error("counts change orders")
	}
	if !a.remove(counted) || a.effective(namespace) != first || !a.remove(first) || len(a.byNamespace) != 0 {
		t.Error("removed ones still decide")
	}
}
