package gateway

import (
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

var inMaintenance = &wire.LocalState{
	StoppedTasks: []wire.StoppedTask{{UID: "u1", Namespace: "fleet", Name: "camera-0", By: "alice (uid 1000)", Since: clock}},
	Maintenance:  &wire.Maintenance{ID: "m1", By: "bob (uid 1001)", Reason: "a broken arm", Since: clock},
}

// registeredWith returns the state after a registration with this local state, and the robot's status that
// is written then.
func registeredWith(t *testing.T, r *robotv1.Robot, protocol string, local *wire.LocalState) robotState {
	t.Helper()
	w := robotState{}
	w.recordRegistration(clock, protocol, wire.Register{AgentVersion: "1", DeviceInfo: device(1), Local: local})
	w.awaitsResponse = false
	if s := planRobot(clock, "r1", w, r, period); s.status != nil {
		r.Status = *s.status
	}
	return w
}

func TestPlanRobot_StoresWhatPeopleAtTheRobotDecided(t *testing.T) {
	r := newKnownRobot("Online")
	if meta.FindStatusCondition(r.Status.Conditions, robotv1.ConditionMaintenance) != nil {
		t.Error("a robot without a maintenance has the condition")
	}
	registeredWith(t, r, robotv1.ProtocolV2, inMaintenance)
	if s := r.Status.StoppedTasks; len(s) != 1 || s[0].UID != "u1" || s[0].Namespace != "fleet" || s[0].Name != "camera-0" || s[0].By != "alice (uid 1000)" || !s[0].Since.Equal(toSeconds(&inMaintenance.StoppedTasks[0].Since)) {
		t.Errorf("stopped tasks %+v", s)
	}
	if m := r.Status.Maintenance; m == nil || m.ID != "m1" || m.By != "bob (uid 1001)" || m.Reason != "a broken arm" || m.Since == nil {
		t.Errorf("maintenance %+v", m)
	}
	c := meta.FindStatusCondition(r.Status.Conditions, robotv1.ConditionMaintenance)
	if want := "In maintenance since " + clock.UTC().Format(time.RFC3339) + ", by bob (uid 1001): a broken arm"; c == nil || c.Status != "True" || c.Reason != robotv1.ReasonMaintenanceOn || c.Message != want {
		t.Errorf("condition %+v, want %q", c, want)
	}
	// A heartbeat has no local state, and a server that was restarted has received no registration yet.
	if s := planRobot(clock, "r1", robotState{protocol: robotv1.ProtocolV2, lastSeen: clock}, r, period); s.status != nil && s.status.Maintenance == nil {
		t.Error("a heartbeat ends the maintenance")
	}
	next := *inMaintenance.Maintenance
	next.ID = "m2" // begun by another agent at the same second for the same reason
	registeredWith(t, r, robotv1.ProtocolV2, &wire.LocalState{StoppedTasks: inMaintenance.StoppedTasks, Maintenance: &next})
	if r.Status.Maintenance.ID != "m2" {
		t.Errorf("the next maintenance is %+v", r.Status.Maintenance)
	}
	registeredWith(t, r, robotv1.ProtocolV2, &wire.LocalState{Maintenance: &next})
	if len(r.Status.StoppedTasks) != 0 {
		t.Errorf("after the restart of the task %+v", r.Status.StoppedTasks)
	}
	registeredWith(t, r, robotv1.ProtocolV2, nil)
	c = meta.FindStatusCondition(r.Status.Conditions, robotv1.ConditionMaintenance)
	if r.Status.Maintenance != nil || r.Status.StoppedTasks != nil || c.Status != "False" || c.Reason != robotv1.ReasonMaintenanceOff {
		t.Errorf("after the maintenance %+v, %+v", r.Status, c)
	}
}

func TestPlanRobot_StoresHolds(t *testing.T) {
	r := newKnownRobot("Online")
	registeredWith(t, r, robotv1.ProtocolV2, inMaintenance)
	if meta.FindStatusCondition(r.Status.Conditions, robotv1.ConditionHeld) != nil {
		t.Error("a robot that was never held has the condition")
	}
	holds := []wire.Hold{
		{ID: "h1", UID: "u1", Namespace: "fleet", Name: "camera-0", By: "alice (uid 1000)", Reason: "it scans", Since: clock},
		{ID: "h2", By: "bob (uid 1001)", Reason: "a visit", Since: clock},
	}
	registeredWith(t, r, robotv1.ProtocolV2, &wire.LocalState{Holds: holds})
	want := robotv1.RobotHold{ID: "h1", TaskUID: "u1", TaskNamespace: "fleet", TaskName: "camera-0", By: "alice (uid 1000)", Reason: "it scans", Since: toSeconds(&clock)}
	if s := r.Status.Holds; len(s) != 2 || !equality.Semantic.DeepEqual(s[0], want) || s[1].TaskUID != "" {
		t.Errorf("holds %+v", s)
	}
	c := meta.FindStatusCondition(r.Status.Conditions, robotv1.ConditionHeld)
	if want := "Task fleet/camera-0 is held since " + clock.UTC().Format(time.RFC3339) + ", by alice (uid 1000): it scans; and 1 more"; c == nil || c.Status != "True" || c.Reason != robotv1.ReasonHeld || c.Message != want {
		t.Errorf("condition %+v, want %q", c, want)
	}
	registeredWith(t, r, robotv1.ProtocolV2, &wire.LocalState{Holds: holds[1:]})
	c = meta.FindStatusCondition(r.Status.Conditions, robotv1.ConditionHeld)
	if len(r.Status.Holds) != 1 || !strings.HasPrefix(c.Message, "The robot is held") {
		t.Errorf("after a release %+v, %+v", r.Status.Holds, c)
	}
	registeredWith(t, r, robotv1.ProtocolV2, nil)
	c = meta.FindStatusCondition(r.Status.Conditions, robotv1.ConditionHeld)
	if r.Status.Holds != nil || c.Status != "False" || c.Reason != robotv1.ReasonReleased {
		t.Errorf("after the last release %+v, %+v", r.Status.Holds, c)
	}
}

func TestPlanRobot_IgnoresLocalStateOfLegacyAgents(t *testing.T) {
	r := newKnownRobot("Online")
	registeredWith(t, r, robotv1.ProtocolV1, inMaintenance)
	if r.Status.Maintenance != nil || r.Status.StoppedTasks != nil {
		t.Errorf("status %+v", r.Status)
	}
}

func TestPlanRobot_RepeatsUnlockUntilTheRobotRegisters(t *testing.T) {
	r := newKnownRobot("Online")
	w := registeredWith(t, r, robotv1.ProtocolV2, inMaintenance)
	if s := planRobot(clock, "r1", w, r, period); s.answer != nil {
		t.Fatalf("without an unlock it is sent %+v", s.answer)
	}
	r.Spec.UnlockMaintenance = "earlier"
	if s := planRobot(clock, "r1", w, r, period); s.answer != nil {
		t.Fatalf("with the unlock of an earlier maintenance it is sent %+v", s.answer)
	}
	r.Spec.UnlockMaintenance = "m1"
	s := planRobot(clock, "r1", w, r, period)
	if s.answer == nil || !s.answer.Success || s.answer.UnlockMaintenance != "m1" {
		t.Fatalf("it is sent %+v", s.answer)
	}
	w.sentUnlock, w.sentUnlockAt = s.answer.UnlockMaintenance, clock
	if s := planRobot(clock.Add(unlockRepeat-1), "r1", w, r, period); s.answer != nil {
		t.Errorf("it is sent again at once %+v", s.answer)
	}
	if s := planRobot(clock.Add(unlockRepeat), "r1", w, r, period); s.answer == nil || s.answer.UnlockMaintenance != "m1" {
		t.Errorf("while the maintenance goes on it is sent %+v", s.answer)
	}
	w.recordRegistration(clock, robotv1.ProtocolV2, wire.Register{Local: inMaintenance}) // over the next connection
	if s := planRobot(clock, "r1", w, r, period); s.answer == nil || s.answer.UnlockMaintenance != "m1" {
		t.Errorf("after another registration it is sent %+v", s.answer)
	}
	r.Spec.Identity = &robotv1.RobotIdentitySpec{Revoked: true}
	if s := planRobot(clock, "r1", w, r, period); s.answer != nil {
		t.Errorf("a revoked robot is sent %+v", s.answer)
	}
}

// A robot does not register again if only the server is another one: its next message is enough.
func TestRecordHeartbeat_SendsUnlockAfterRestartOfServer(t *testing.T) {
	before := newKnownRobot("Online")
	registeredWith(t, before, robotv1.ProtocolV2, inMaintenance)
	g := newSweepingGateway(t, before)
	g.recordHeartbeat("r1", robotv1.ProtocolV2, wire.Heartbeat{Seq: 1}, before)
	before.Status = *nextRobotStatus(before.Status, g.stateOf("r1"))
	for id, want := range map[string]int{"": 0, "earlier": 0, "m1": 1} {
		r := before.DeepCopy()
		r.Spec.UnlockMaintenance = id
		g := newSweepingGateway(t, r)
		if s := planRobot(clock, "r1", g.stateOf("r1"), r, period); s.answer != nil || g.robotQueue.Len() != 0 {
			t.Errorf("unlock of %q: before a message of the robot it is sent %+v", id, s.answer)
		}
		g.recordHeartbeat("r1", robotv1.ProtocolV2, wire.Heartbeat{Seq: 1}, r)
		if n := g.robotQueue.Len(); n != want {
			t.Errorf("unlock of %q: %d robots are queued", id, n)
		}
		s := planRobot(clock, "r1", g.stateOf("r1"), r, period)
		if got := s.answer != nil && s.answer.UnlockMaintenance == id; got != (want == 1) {
			t.Errorf("unlock of %q: it is sent %+v", id, s.answer)
		}
	}
}

// The server has queued the unlock when its connection breaks, and the robot keeps its own.
func TestRecordHeartbeat_RepeatsUnlockOfBrokenConnection(t *testing.T) {
	r, now := newKnownRobot("Online"), clock
	registeredWith(t, r, robotv1.ProtocolV2, inMaintenance)
	r.Spec.UnlockMaintenance = "m1"
	g := newSweepingGateway(t, r)
	g.now = func() time.Time { return now }
	beat := func() (connections []int64) {
		t.Helper()
		g.recordHeartbeat("r1", robotv1.ProtocolV2, wire.Heartbeat{Seq: 1}, g.objects.robot("r1"))
		if s := planRobot(now, "r1", g.stateOf("r1"), g.objects.robot("r1"), period); s.answer != nil {
			g.sendResponse("r1", s.answer)
		}
		return takeConnections(g.mqtt)
	}
	first := g.mqtt.nextConnection()
	if got := beat(); !slices.Equal(got, []int64{first}) {
		t.Fatalf("it is queued for the connections %d, want %d", got, first)
	}
	g.mqtt.nextConnection() // the message is dropped
	second := g.mqtt.nextConnection()
	now = now.Add(unlockRepeat)
	if got := beat(); !slices.Equal(got, []int64{second}) {
		t.Fatalf("then it is queued for the connections %d, want %d", got, second)
	}
	ended := g.objects.robot("r1").DeepCopy()
	ended.Status.Maintenance, ended.ResourceVersion = nil, "2"
	g.handleRobotUpdate(ended)
	now = now.Add(unlockRepeat)
	if got := beat(); len(got) != 0 {
		t.Errorf("after the maintenance it is queued for the connections %d", got)
	}
}

// takeConnections empties the queues, and returns for which connections their messages are.
func takeConnections(c *mqttClient) (connections []int64) {
	for _, q := range c.queues {
		for len(q) > 0 {
			connections = append(connections, (<-q).connection)
		}
	}
	return connections
}
