package gateway

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

const offlineAfter = 5 * time.Minute

// period is the time between two writes of the status of r1 that only change its last heartbeat.
var period = statusPeriod("r1", offlineAfter, true)

// noUptime is the uptime in tests that measure none.
func noUptime() time.Duration { return 0 }

// newKnownRobot returns a robot whose last heartbeat was received and written at the clock's time.
func newKnownRobot(phase string, edit ...func(*robotv1.RobotStatus)) *robotv1.Robot {
	w := robotState{}
	w.recordRegistration(clock, robotv1.ProtocolV2, wire.Register{AgentVersion: "1", DeviceInfo: device(1)})
	r := newRobot(namespace, "r1", nil, w)
	r.Status = *nextRobotStatus(robotv1.RobotStatus{Phase: phase}, w)
	for _, e := range edit {
		e(&r.Status)
	}
	return r
}

// device returns device info with this usage, which changes in each heartbeat.
func device(use float64) *wire.DeviceInfo {
	return &wire.DeviceInfo{Hostname: "h", CPU: &wire.CPU{LogicalCores: 4, UsagePercent: use}, Memory: &wire.Memory{Total: 8, Used: uint64(use)}, Uptime: uint64(use)}
}

func seenAt(after time.Duration, edit ...func(*robotState)) robotState {
	w := robotState{}
	w.recordRegistration(clock, robotv1.ProtocolV2, wire.Register{AgentVersion: "1", DeviceInfo: device(1)})
	w.awaitsResponse = false
	w.recordContact(clock.Add(after))
	for _, e := range edit {
		e(&w)
	}
	return w
}

func TestPlanRobot(t *testing.T) {
	for _, row := range []struct {
		name   string
		robot  *robotv1.Robot
		state  robotState
		silent time.Duration // since the last message
		create bool
		write  bool
		answer bool
		warn   bool
	}{
		{name: "a robot that registers for the first time gets an object", state: seenAt(0, func(w *robotState) { w.awaitsResponse = true }), create: true},
		{name: "an unknown robot that did not register gets none", state: seenAt(0)},
		{name: "a new object gets its status",
			robot: newRobot(namespace, "r1", nil, robotState{}), state: seenAt(0, func(w *robotState) { w.awaitsResponse = true }), write: true},
		{name: "a pending robot gets no response",
			robot: newKnownRobot("Pending"), state: seenAt(0, func(w *robotState) { w.awaitsResponse = true })},
		{name: "an approved robot gets a response",
			robot: newKnownRobot("online"), state: seenAt(0, func(w *robotState) { w.awaitsResponse = true }), answer: true},
		{name: "a response is sent once", robot: newKnownRobot("Online"), state: seenAt(0)},
		{name: "a heartbeat soon after the previous one is not written", robot: newKnownRobot("Online"), state: seenAt(30 * time.Second)},
		{name: "a change of usage and uptime is not written",
			robot: newKnownRobot("Online"), state: seenAt(time.Second, func(w *robotState) { w.device = device(99) })},
		{name: "a change of the device is written",
			robot: newKnownRobot("Online"), state: seenAt(time.Second, func(w *robotState) { w.device = &wire.DeviceInfo{Hostname: "other"} }), write: true},
		{name: "a change of the version is written",
			robot: newKnownRobot("Online"), state: seenAt(time.Second, func(w *robotState) { w.version = "2" }), write: true},
		{name: "heartbeats of a steady robot are in its slice", robot: newKnownRobot("Online"), state: seenAt(period - time.Second)},
		{name: "every 16 to 20 minutes the status gets the last one", robot: newKnownRobot("Online"), state: seenAt(period), write: true},
		{name: "a time that the API truncates is written once",
			robot: newKnownRobot("Online"), state: seenAt(300 * time.Nanosecond), silent: offlineAfter - time.Second},
		{name: "the name of its slice is written, so that its heartbeats can be acknowledged",
			robot: newKnownRobot("Online"), state: seenAt(time.Second, func(w *robotState) { w.slice = "heartbeats-0" }), write: true},
		{name: "the name of its slice is written once",
			robot: newKnownRobot("Online", func(s *robotv1.RobotStatus) { s.HeartbeatSlice = "heartbeats-0" }), state: seenAt(time.Second, func(w *robotState) { w.slice = "heartbeats-0" })},
		{name: "a heartbeat of an offline robot is written at once", robot: newKnownRobot("Offline"), state: seenAt(time.Second), write: true},
		{name: "a time in the future is corrected",
			robot: newKnownRobot("Online", func(s *robotv1.RobotStatus) {
				s.LastHeartbeatTime = &metav1.MicroTime{Time: clock.Add(time.Hour)}
			}), state: seenAt(time.Second), write: true},
		{name: "a last will is written",
			robot: newKnownRobot("Online"), state: seenAt(0, func(w *robotState) { w.disconnectReason = robotv1.ReasonLastWill }), write: true},
		{name: "an unresponsive robot is written",
			robot: newKnownRobot("Offline"), state: seenAt(0, func(w *robotState) { w.disconnectReason = robotv1.ReasonUnresponsive }), write: true},
		{name: "an unresponsive robot is written once", robot: newKnownRobot("Offline", setUnresponsive), state: seenAt(0, func(w *robotState) { w.disconnectReason = robotv1.ReasonUnresponsive })},
		{name: "a heartbeat of an unresponsive robot is written at once",
			robot: newKnownRobot("Unknown", setUnresponsive), state: seenAt(time.Millisecond), write: true},
		{name: "a robot that answers no dispatch gets a condition and a warning",
			robot: newKnownRobot("Online"), state: seenAt(0, func(w *robotState) { w.unresponsive = true }), write: true, warn: true},
		{name: "the warning is sent once",
			robot: newKnownRobot("Online", func(s *robotv1.RobotStatus) {
				meta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: robotv1.ConditionResponsive, Status: metav1.ConditionFalse, Reason: "DispatchUnanswered", Message: messageUnresponsive})
			}), state: seenAt(0, func(w *robotState) { w.unresponsive = true })},
		{name: "a server that has just started has nothing to write", robot: newKnownRobot("Online"), state: robotState{}},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := planRobot(row.state.lastSeen.Add(row.silent), "r1", row.state, row.robot, period)
			got := fmt.Sprint(s.create, s.status != nil, s.answer != nil, s.warning)
			if want := fmt.Sprint(row.create, row.write, row.answer, row.warn); got != want {
				t.Errorf("create, write, answer, warn: %s, want %s\nstatus %+v", got, want, s.status)
			}
		})
	}
}

func setUnresponsive(s *robotv1.RobotStatus) {
	w := robotState{disconnectReason: robotv1.ReasonUnresponsive}
	setConnected(s, w)
}

func TestPlanRobot_CorrectsFutureHeartbeatTime(t *testing.T) {
	ahead := newKnownRobot("Online", func(s *robotv1.RobotStatus) { s.LastHeartbeatTime = &metav1.MicroTime{Time: clock.Add(time.Hour)} })
	s := planRobot(clock.Add(time.Second), "r1", seenAt(time.Second), ahead, period)
	if s.status == nil || !s.status.LastHeartbeatTime.Time.Equal(clock.Add(time.Second)) {
		t.Errorf("status %+v: the robot would look unresponsive until the clock has caught up", s.status)
	}
}

// A certificate authenticates a robot to the broker. It proves nothing to a server that connects to
// the broker without TLS.
func TestPlanRobot_PlaintextBrokerIsUnauthenticated(t *testing.T) {
	w, r := seenAt(0), newKnownRobot("Online")
	r.Status.Identity = newJoinedRobot("r1").Status.Identity
	w.plaintext = true
	c := meta.FindStatusCondition(nextRobotStatus(r.Status, w).Conditions, robotv1.ConditionAuthenticated)
	if c == nil || c.Status != metav1.ConditionFalse || c.Reason != robotv1.ReasonPlaintextBroker {
		t.Errorf("%+v", c)
	}
	of := newRobotStates(Config{MQTTURL: "mqtt://broker:1883"}.IsPlaintextBroker(), noUptime)
	of.updateState("r1", true, func(w *robotState) { w.recordContact(clock) })
	if !of.stateOf("r1").plaintext {
		t.Error("the state of the robot is not marked as plaintext")
	}
}

func TestPlanRobot_NewRobotIsPending(t *testing.T) {
	s := planRobot(clock, "r1", seenAt(0), newRobot(namespace, "r1", nil, robotState{}), period)
	if s.status.Phase != "Pending" || s.status.Message != "Registration received, waiting for approval" || s.status.Agent.Protocol != robotv1.ProtocolV2 {
		t.Errorf("status %+v", s.status)
	}
}

// A server of an earlier version has written the status, and the entry in the slice is from before. The
// self-stop deadline counts from the entry as soon as the status names the slice.
func TestPlanRobot_NamesSliceAfterMessage(t *testing.T) {
	former := newKnownRobot("Online", func(s *robotv1.RobotStatus) { s.HeartbeatSlice = "" }).Status
	moved := former
	moved.HeartbeatSlice = "heartbeats-1"
	will := robotState{slice: "heartbeats-0", disconnectReason: robotv1.ReasonLastWill}
	for _, row := range []struct {
		name   string
		status robotv1.RobotStatus
		state  robotState
		want   string
	}{
		{"no message to this server but a last will", former, will, ""},
		{"a heartbeat", former, seenAt(0, func(w *robotState) { w.slice = "heartbeats-0" }), "heartbeats-0"},
		{"the robot has moved to another slice", moved, will, "heartbeats-0"},
	} {
		if got := nextRobotStatus(row.status, row.state).HeartbeatSlice; got != row.want {
			t.Errorf("%s: %q, want %q", row.name, got, row.want)
		}
	}
}

// With the slices, of which each of 500 robots is written every 30 s, a steady robot may cost four
// writes an hour.
func TestStatusPeriod_IsSpread(t *testing.T) {
	for _, row := range []struct {
		readsSlices bool
		least, most time.Duration
	}{{true, 16 * time.Minute, 20 * time.Minute}, {false, offlineAfter / 9, offlineAfter / 3}} {
		seen, writes := map[time.Duration]bool{}, 0.0
		for i := range 1000 {
			p := statusPeriod(fmt.Sprintf("robot-%d", i), offlineAfter, row.readsSlices)
			if p < row.least || p > row.most {
				t.Fatalf("period %s", p)
			}
			seen[p] = true
			writes += time.Hour.Hours() / p.Hours() / 1000
		}
		if len(seen) < 300 {
			t.Errorf("1000 robots share %d periods", len(seen))
		}
		if of := slicePeriod(types.NamespacedName{Name: sliceName(0)}, offlineAfter); row.readsSlices && writes+time.Hour.Hours()/of.Hours()/robotv1.MaxSliceRobots > 4 {
			t.Errorf("%.2f writes of the status an hour", writes)
		}
	}
}

func TestRobotLabels_MergeReported(t *testing.T) {
	type m = map[string]string
	for _, row := range []struct {
		name               string
		all, own, reported m
		wantAll            m
		wantOwn            m
	}{
		{name: "missing labels are added", all: m{"a": "user"}, reported: m{"a": "robot", "b": "robot"}, wantAll: m{"a": "user", "b": "robot"}, wantOwn: m{"b": "robot"}},
		{name: "there is nothing to add", all: m{"a": "user"}, reported: m{"a": "robot"}, wantAll: m{"a": "user"}},
		{name: "labels that are no longer reported are removed", all: m{"a": "user", "b": "robot", "c": "robot"}, own: m{"b": "robot", "c": "robot"}, reported: m{"c": "robot"},
			wantAll: m{"a": "user", "c": "robot"}, wantOwn: m{"c": "robot"}},
		{name: "all reported labels are removed, those of a user stay", all: m{"a": "user", "b": "robot"}, own: m{"b": "robot"}, wantAll: m{"a": "user"}},
		{name: "a changed label is updated", all: m{"b": "robot"}, own: m{"b": "robot"}, reported: m{"b": "new"}, wantAll: m{"b": "new"}, wantOwn: m{"b": "new"}},
		{name: "a reported label that a user has changed belongs to the user", all: m{"b": "user", "c": "user"}, own: m{"b": "robot", "c": "robot"}, reported: m{"b": "robot"},
			wantAll: m{"b": "user", "c": "user"}},
		{name: "a label that a user has removed is added while it is reported", own: m{"b": "robot"}, reported: m{"b": "robot"}, wantAll: m{"b": "robot"}, wantOwn: m{"b": "robot"}},
		{name: "an empty name is ignored", reported: m{"": "x"}},
		{name: "labels with another syntax are ignored", reported: m{"a": "x; reboot", "b": "$(id)", "c": strings.Repeat("x", 64), "d e": "x", "f": "x", "g": ""},
			wantAll: m{"f": "x", "g": ""}, wantOwn: m{"f": "x", "g": ""}},
		{name: "a label that was accepted before is removed if it has another syntax", all: m{"a": "x y"}, own: m{"a": "x y"}, reported: m{"a": "x y"}},
	} {
		got := robotLabels{all: row.all, reported: row.own}.mergeReported(row.reported)
		if !maps.Equal(got.all, row.wantAll) || !maps.Equal(got.reported, row.wantOwn) {
			t.Errorf("%s: %v, own %v", row.name, got.all, got.reported)
		}
		r := newRobot(namespace, "r1", nil, robotState{})
		got.applyTo(r)
		if read := labelsOf(r); !read.equal(got) {
			t.Errorf("%s: read back as %v", row.name, read)
		}
		if again := got.mergeReported(row.reported); !again.equal(got) {
			t.Errorf("%s: a second merge changes it to %v", row.name, again)
		}
	}
	many := m{}
	for i := range 200 {
		many[fmt.Sprint(i)] = "x"
	}
	if got := (robotLabels{}).mergeReported(many); len(got.all) != maxLabels || !got.equal(got.mergeReported(many)) {
		t.Errorf("%d labels", len(got.all))
	}
	damaged := newRobot(namespace, "r1", m{"a": "user"}, robotState{})
	damaged.Annotations = m{annotationReportedLabels: "no JSON"}
	if got := labelsOf(damaged).mergeReported(nil); !maps.Equal(got.all, m{"a": "user"}) {
		t.Errorf("with an invalid annotation: %v", got)
	}
}

// A user of the robot sees why its labels have no effect.
func TestPlanRobot_ReportsIgnoredLabels(t *testing.T) {
	condition := func(s robotv1.RobotStatus) string {
		c := meta.FindStatusCondition(s.Conditions, robotv1.ConditionLabelsAccepted)
		if c == nil {
			return ""
		}
		return fmt.Sprint(c.Status, " ", c.Reason, " ", c.Message)
	}
	r := newRobot(namespace, "r1", nil, robotState{})
	for _, step := range []struct {
		name   string
		labels map[string]string
		want   string
	}{
		{"valid labels", map[string]string{"site": "hall"}, ""},
		{"an invalid value", map[string]string{"site": "x; reboot", "arm": "left"}, `False LabelInvalid The robot reports labels that are ignored: label "site": the value "x; reboot" must be`},
		{"valid labels again", map[string]string{"site": "hall"}, "True LabelsValid"},
	} {
		s := planRobot(clock, "r1", seenAt(0, func(w *robotState) { w.registered, w.labels = clock, step.labels }), r, period)
		if s.status == nil && step.want != "" {
			t.Fatalf("%s: the status is not written", step.name)
		}
		if s.status != nil {
			r.Status = *s.status
		}
		if got := condition(r.Status); !strings.HasPrefix(got, step.want) || step.want == "" && got != "" {
			t.Errorf("%s: %q, want %q", step.name, got, step.want)
		}
	}
}

// A heartbeat contains no labels and must not remove any.
func TestPlanRobot_RemovesLabelsOnlyAtRegistration(t *testing.T) {
	r := newRobot(namespace, "r1", map[string]string{"site": "hall"}, robotState{labels: map[string]string{"arm": "left"}})
	if s := planRobot(clock, "r1", seenAt(0, func(w *robotState) { w.registered = time.Time{} }), r, period); s.labels != nil {
		t.Errorf("a heartbeat: %v", s.labels)
	}
	s := planRobot(clock, "r1", seenAt(0, func(w *robotState) { w.registered = clock }), r, period)
	if s.labels == nil || !maps.Equal(s.labels.all, map[string]string{"site": "hall"}) {
		t.Errorf("a registration without any: %v", s.labels)
	}
}

func TestRobotStates_BoundsUnknownRobots(t *testing.T) {
	r := newRobotStates(false, noUptime)
	for i := range maxUnknownRobots {
		r.updateState(fmt.Sprint(i), false, func(w *robotState) { w.recordContact(clock) })
	}
	if r.updateState("one-more", false, func(*robotState) {}) {
		t.Error("an unknown robot above the limit was recorded")
	}
	if !r.updateState("known", true, func(*robotState) {}) {
		t.Error("a known robot was refused")
	}
	r.forgetUnknown(func(id string) bool { return id == "known" }, clock.Add(time.Hour), time.Minute)
	if n := len(r.byID); n != 1 {
		t.Errorf("%d robots are recorded", n)
	}
}

func TestPlanRobot_ReportsWhyRobotGetsNoTasks(t *testing.T) {
	silent := func(w *robotState) { w.unresponsive = true }
	heartbeat := func(h wire.Heartbeat) func(*robotState) {
		return func(w *robotState) { w.recordHeartbeat(clock, robotv1.ProtocolV2, h) }
	}
	full := wire.Heartbeat{Seq: 1, DiskPressure: true, JournalReadOnly: true}
	register := func(w *robotState) { w.recordRegistration(clock, robotv1.ProtocolV2, wire.Register{}) }
	for _, c := range []struct {
		name  string
		steps []func(*robotState) // each is written
		want  string              // Responsive, DiskPressure, JournalReadOnly
	}{
		{"a robot that is well has none of the conditions", []func(*robotState){heartbeat(wire.Heartbeat{Seq: 1})}, ", , "},
		{"one that does not answer", []func(*robotState){silent}, "False DispatchUnanswered, , "},
		{"one that does not answer sends another heartbeat", []func(*robotState){silent, heartbeat(wire.Heartbeat{Seq: 2})}, "False DispatchUnanswered, , "},
		{"its agent registers again", []func(*robotState){silent, register}, "True NotTested, , "},
		{"and answers", []func(*robotState){silent, register, func(w *robotState) { w.hasAnswered = true }}, "True DispatchAnswered, , "},
		{"a new server gives it another chance", []func(*robotState){silent, func(w *robotState) { *w = seenAt(0) }}, "True NotTested, , "},
		{"a full disk", []func(*robotState){heartbeat(full)}, ", True DiskAlmostFull, True JournalNotWritable"},
		{"a disk that has room again", []func(*robotState){heartbeat(full), heartbeat(wire.Heartbeat{Seq: 2})}, ", False DiskHasRoom, False JournalWritable"},
		{"a registration, or a new server before a heartbeat, changes nothing about the disk",
			[]func(*robotState){heartbeat(full), func(w *robotState) { *w = seenAt(0) }}, ", True DiskAlmostFull, True JournalNotWritable"},
		{"a heartbeat of a legacy agent",
			[]func(*robotState){func(w *robotState) { w.recordHeartbeat(clock, robotv1.ProtocolV1, wire.Heartbeat{}) }}, ", , "},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, w := newKnownRobot("Online"), seenAt(0)
			for _, step := range c.steps {
				step(&w)
				r.Status = *nextRobotStatus(r.Status, w)
			}
			all := map[string]string{}
			for _, c := range r.Status.Conditions {
				all[c.Type] = string(c.Status) + " " + c.Reason
			}
			got := fmt.Sprintf("%s, %s, %s", all[robotv1.ConditionResponsive], all[robotv1.ConditionDiskPressure], all[robotv1.ConditionJournalReadOnly])
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// After a restart of the server its first message may be a heartbeat.
func TestAnswersDispatches_IsRemembered(t *testing.T) {
	w := robotState{}
	w.recordRegistration(clock, robotv1.ProtocolV2, wire.Register{AnswersDispatches: true})
	r := newKnownRobot("Online")
	r.Status = *nextRobotStatus(r.Status, w)
	if !answersDispatches(w, r) || !answersDispatches(robotState{lastSeen: clock}, r) {
		t.Errorf("agent %+v", r.Status.Agent)
	}
	w.recordRegistration(clock, robotv1.ProtocolV2, wire.Register{}) // downgraded
	if answersDispatches(w, r) {
		t.Error("an agent of the previous version does not answer dispatches")
	}
}
