package gateway

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

const offlineAfter = 5 * time.Minute

// newKnownRobot returns a robot whose last heartbeat was received and written at the clock's time.
func newKnownRobot(phase string, edit ...func(*robotv1.RobotStatus)) *robotv1.Robot {
	w := robotState{}
	w.recordRegistration(clock, robotv1.ProtocolV2, wire.Register{AgentVersion: "1", DeviceInfo: device(1)})
	r := newRobot(namespace, "r1", nil, w)
	r.Status = *nextRobotStatus(robotv1.RobotStatus{Phase: phase}, w, offlineAfter)
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
		word   robotState
		silent time.Duration // since the last message
		create bool
		write  bool
		answer bool
		warn   bool
	}{
		{name: "a robot that registers for the first time gets an object", word: seenAt(0, func(w *robotState) { w.awaitsResponse = true }), create: true},
		{name: "an unknown robot that did not register gets none", word: seenAt(0)},
		{name: "a new object gets its status",
			robot: newRobot(namespace, "r1", nil, robotState{}), word: seenAt(0, func(w *robotState) { w.awaitsResponse = true }), write: true},
		{name: "a robot that waits for its approval gets no answer",
			robot: newKnownRobot("Pending"), word: seenAt(0, func(w *robotState) { w.awaitsResponse = true })},
		{name: "an approved robot gets its answer",
			robot: newKnownRobot("online"), word: seenAt(0, func(w *robotState) { w.awaitsResponse = true }), answer: true},
		{name: "an answer is given once", robot: newKnownRobot("Online"), word: seenAt(0)},
		{name: "a heartbeat soon after the last is not worth a write", robot: newKnownRobot("Online"), word: seenAt(30 * time.Second)},
		{name: "use and uptime are not worth a write",
			robot: newKnownRobot("Online"), word: seenAt(time.Second, func(w *robotState) { w.device = device(99) })},
		{name: "another device is",
			robot: newKnownRobot("Online"), word: seenAt(time.Second, func(w *robotState) { w.device = &wire.DeviceInfo{Hostname: "other"} }), write: true},
		{name: "another version is",
			robot: newKnownRobot("Online"), word: seenAt(time.Second, func(w *robotState) { w.version = "2" }), write: true},
		{name: "before a third of offlineAfter is over the heartbeat is written",
			robot: newKnownRobot("Online"), word: seenAt(offlineAfter * 2 / 9), write: true},
		{name: "what was heard last is written when a third of offlineAfter is over, though nothing follows it",
			robot: newKnownRobot("Online"), word: seenAt(30 * time.Second), silent: offlineAfter/3 - 30*time.Second, write: true},
		{name: "and not before", robot: newKnownRobot("Online"), word: seenAt(30 * time.Second), silent: offlineAfter/3 - 31*time.Second},
		{name: "what an object cannot say more exactly is written once",
			robot: newKnownRobot("Online"), word: seenAt(300 * time.Nanosecond), silent: offlineAfter - time.Second},
		{name: "what a heartbeat of ours is not covered by is written, so that it can be acknowledged",
			robot: newKnownRobot("Online", func(s *robotv1.RobotStatus) { s.AcknowledgedUntil = nil }),
			word:  seenAt(time.Second, func(w *robotState) { w.heartbeatSeq = 7 }), write: true},
		{name: "an offline robot that speaks is written at once", robot: newKnownRobot("Offline"), word: seenAt(time.Second), write: true},
		{name: "a time that lies ahead of our clock is due",
			robot: newKnownRobot("Online", func(s *robotv1.RobotStatus) {
				s.LastHeartbeatTime = &metav1.MicroTime{Time: clock.Add(time.Hour)}
			}), word: seenAt(time.Second), write: true},
		{name: "a last will is written",
			robot: newKnownRobot("Online"), word: seenAt(0, func(w *robotState) { w.disconnectReason = robotv1.ReasonLastWill }), write: true},
		{name: "that a robot has fallen silent is written",
			robot: newKnownRobot("Offline"), word: seenAt(0, func(w *robotState) { w.disconnectReason = robotv1.ReasonUnresponsive }), write: true},
		{name: "once", robot: newKnownRobot("Offline", setUnresponsive), word: seenAt(0, func(w *robotState) { w.disconnectReason = robotv1.ReasonUnresponsive })},
		{name: "a robot that speaks again after it has been silent is written at once",
			robot: newKnownRobot("Unknown", setUnresponsive), word: seenAt(time.Millisecond), write: true},
		{name: "a deaf robot is shown, with a warning",
			robot: newKnownRobot("Online"), word: seenAt(0, func(w *robotState) { w.unresponsive = true }), write: true, warn: true},
		{name: "the warning comes once",
			robot: newKnownRobot("Online", func(s *robotv1.RobotStatus) {
				meta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: robotv1.ConditionResponsive, Status: metav1.ConditionFalse, Reason: "DispatchUnanswered", Message: messageUnresponsive})
			}), word: seenAt(0, func(w *robotState) { w.unresponsive = true })},
		{name: "a server that has just started has nothing to write", robot: newKnownRobot("Online"), word: robotState{}},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := planRobot(row.word.lastSeen.Add(row.silent), "r1", row.word, row.robot, offlineAfter)
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
	s := planRobot(clock.Add(time.Second), "r1", seenAt(time.Second), ahead, offlineAfter)
	if s.status == nil || !s.status.LastHeartbeatTime.Time.Equal(clock.Add(time.Second)) {
		t.Errorf("status %+v: the robot looks dead until the clock has caught up", s.status)
	}
}

// An unresponsive robot goes Offline offlineAfter after its last heartbeat, even if that heartbeat
// was not written at once, and stays Offline.
func TestPlanRobot_UnresponsiveRobotGoesOfflineOnce(t *testing.T) {
	for beats := range 40 {
		r, w := newKnownRobot("Online"), seenAt(0)
		last := clock.Add(time.Duration(beats) * 10 * time.Second)
		var offline time.Time
		writes := 0
		for now := clock; now.Before(last.Add(2 * offlineAfter)); now = now.Add(time.Second) {
			if now.Sub(clock)%(10*time.Second) == 0 && !now.After(last) {
				w.recordHeartbeat(now, robotv1.ProtocolV2, wire.Heartbeat{Seq: 1})
			}
			if s := planRobot(now, "r1", w, r, offlineAfter); s.status != nil {
				if !offline.IsZero() {
					t.Fatalf("%d heartbeats: a word of %s looks like a return at %s", beats, w.lastSeen.Sub(clock), now.Sub(clock))
				}
				r.Status = *s.status
				writes++
			}
			if offline.IsZero() && now.Sub(r.Status.LastHeartbeatTime.Time) >= offlineAfter { // as the manager does
				r.Status.Phase, offline = string(lifecycle.RobotOffline), now
			}
		}
		if got := offline.Sub(last); got != offlineAfter {
			t.Errorf("%d heartbeats: offline %s after the last one", beats, got)
		}
		if most := 1 + int(last.Sub(clock)/(offlineAfter/9)); writes > most {
			t.Errorf("%d heartbeats: %d writes, want %d at the most", beats, writes, most)
		}
	}
}

// The manager computes a robot's self-stop deadline from the written heartbeat.
func TestCoversHeartbeat_RequiresWrittenHeartbeat(t *testing.T) {
	r := newKnownRobot("Online")
	for after, want := range map[time.Duration]bool{0: true, offlineAfter / 3: true, offlineAfter/3 + time.Microsecond: false} {
		if got := coversHeartbeat(r.Status, clock.Add(after)); got != want {
			t.Errorf("heard %s after what is written: acknowledged %v", after, got)
		}
	}
	if coversHeartbeat(robotv1.RobotStatus{}, clock) {
		t.Error("acknowledged what is not written")
	}
}

// A certificate authenticates a robot to the broker. It proves nothing to a server that connects to
// the broker without TLS.
func TestPlanRobot_PlaintextBrokerIsUnauthenticated(t *testing.T) {
	w, r := seenAt(0), newKnownRobot("Online")
	r.Status.Identity = newJoinedRobot("r1").Status.Identity
	w.plaintext = true
	c := meta.FindStatusCondition(nextRobotStatus(r.Status, w, offlineAfter).Conditions, robotv1.ConditionAuthenticated)
	if c == nil || c.Status != metav1.ConditionFalse || c.Reason != robotv1.ReasonPlaintextBroker {
		t.Errorf("%+v", c)
	}
	of := newRobotStates(Config{MQTTURL: "mqtt://broker:1883"}.IsPlaintextBroker())
	of.updateState("r1", true, func(w *robotState) { w.recordContact(clock) })
	if !of.stateOf("r1").plaintext {
		t.Error("the state of the robot is not marked as plaintext")
	}
}

func TestPlanRobot_NewRobotIsPending(t *testing.T) {
	s := planRobot(clock, "r1", seenAt(0), newRobot(namespace, "r1", nil, robotState{}), offlineAfter)
	if s.status.Phase != "Pending" || s.status.Message != "Registration received, waiting for approval" || s.status.Agent.Protocol != robotv1.ProtocolV2 {
		t.Errorf("status %+v", s.status)
	}
}

func TestHeartbeatPeriod_IsSpread(t *testing.T) {
	seen := map[time.Duration]bool{}
	for i := range 1000 {
		p := heartbeatPeriod(fmt.Sprintf("robot-%d", i), offlineAfter)
		if p < offlineAfter/9 || p > offlineAfter/3 {
			t.Fatalf("period %s", p)
		}
		seen[p] = true
	}
	if len(seen) < 300 {
		t.Errorf("1000 robots share %d periods", len(seen))
	}
}

func TestRobotLabels_MergeReported(t *testing.T) {
	type m = map[string]string
	for _, row := range []struct {
		name           string
		all, own, said m
		wantAll        m
		wantOwn        m
	}{
		{name: "it fills what is missing", all: m{"a": "person"}, said: m{"a": "robot", "b": "robot"}, wantAll: m{"a": "person", "b": "robot"}, wantOwn: m{"b": "robot"}},
		{name: "there is nothing to add", all: m{"a": "person"}, said: m{"a": "robot"}, wantAll: m{"a": "person"}},
		{name: "what it does not say any more goes away", all: m{"a": "person", "b": "robot", "c": "robot"}, own: m{"b": "robot", "c": "robot"}, said: m{"c": "robot"},
			wantAll: m{"a": "person", "c": "robot"}, wantOwn: m{"c": "robot"}},
		{name: "all of it, and what a person set stays", all: m{"a": "person", "b": "robot"}, own: m{"b": "robot"}, wantAll: m{"a": "person"}},
		{name: "what it says otherwise is changed", all: m{"b": "robot"}, own: m{"b": "robot"}, said: m{"b": "new"}, wantAll: m{"b": "new"}, wantOwn: m{"b": "new"}},
		{name: "what a person has changed is the person's, said or not", all: m{"b": "person", "c": "person"}, own: m{"b": "robot", "c": "robot"}, said: m{"b": "robot"},
			wantAll: m{"b": "person", "c": "person"}},
		{name: "what a person has removed comes again while it says so", own: m{"b": "robot"}, said: m{"b": "robot"}, wantAll: m{"b": "robot"}, wantOwn: m{"b": "robot"}},
		{name: "a name that is none is left out", said: m{"": "x"}},
	} {
		got := robotLabels{all: row.all, reported: row.own}.mergeReported(row.said)
		if !maps.Equal(got.all, row.wantAll) || !maps.Equal(got.reported, row.wantOwn) {
			t.Errorf("%s: %v, own %v", row.name, got.all, got.reported)
		}
		r := newRobot(namespace, "r1", nil, robotState{})
		got.applyTo(r)
		if read := labelsOf(r); !read.equal(got) {
			t.Errorf("%s: written down it is %v", row.name, read)
		}
		if again := got.mergeReported(row.said); !again.equal(got) {
			t.Errorf("%s: it is not content with what it wrote: %v", row.name, again)
		}
	}
	many := m{}
	for i := range 200 {
		many[fmt.Sprint(i)] = "x"
	}
	if got := (robotLabels{}).mergeReported(many); len(got.all) != maxLabels || !got.equal(got.mergeReported(many)) {
		t.Errorf("%d labels", len(got.all))
	}
	damaged := newRobot(namespace, "r1", m{"a": "person"}, robotState{})
	damaged.Annotations = m{annotationReportedLabels: "no JSON"}
	if got := labelsOf(damaged).mergeReported(nil); !maps.Equal(got.all, m{"a": "person"}) {
		t.Errorf("of a note that cannot be read: %v", got)
	}
}

// A heartbeat contains no labels and must not remove any.
func TestPlanRobot_RemovesLabelsOnlyAtRegistration(t *testing.T) {
	r := newRobot(namespace, "r1", map[string]string{"site": "hall"}, robotState{labels: map[string]string{"arm": "left"}})
	if s := planRobot(clock, "r1", seenAt(0, func(w *robotState) { w.registered = time.Time{} }), r, offlineAfter); s.labels != nil {
		t.Errorf("a heartbeat: %v", s.labels)
	}
	s := planRobot(clock, "r1", seenAt(0, func(w *robotState) { w.registered = clock }), r, offlineAfter)
	if s.labels == nil || !maps.Equal(s.labels.all, map[string]string{"site": "hall"}) {
		t.Errorf("a registration without any: %v", s.labels)
	}
}

func TestRobotStates_BoundsUnknownRobots(t *testing.T) {
	r := newRobotStates(false)
	for i := range maxUnknownRobots {
		r.updateState(fmt.Sprint(i), false, func(w *robotState) { w.recordContact(clock) })
	}
	if r.updateState("one-more", false, func(*robotState) {}) {
		t.Error("one more was remembered")
	}
	if !r.updateState("known", true, func(*robotState) {}) {
		t.Error("a known robot was refused")
	}
	r.forgetUnknown(func(id string) bool { return id == "known" }, clock.Add(time.Hour), time.Minute)
	if n := len(r.byID); n != 1 {
		t.Errorf("%d are remembered", n)
	}
}
