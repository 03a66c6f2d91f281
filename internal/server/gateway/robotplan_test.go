package bridge

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/lifecycle"
	"k8s4r.io/k8s4r/internal/wire"
)

const offlineAfter = 5 * time.Minute

// known is a robot that has been heard and written at the clock's time.
func known(phase string, edit ...func(*robotv1.RobotStatus)) *robotv1.Robot {
	w := word{}
	w.register(clock, robotv1.ProtocolK8s4r, wire.Register{AgentVersion: "1", DeviceInfo: device(1)})
	r := newRobot(namespace, "r1", nil, w)
	r.Status = *nextRobotStatus(robotv1.RobotStatus{Phase: phase}, w, offlineAfter)
	for _, e := range edit {
		e(&r.Status)
	}
	return r
}

// device is one whose use changes all the time.
func device(use float64) *wire.DeviceInfo {
	return &wire.DeviceInfo{Hostname: "h", CPU: &wire.CPU{LogicalCores: 4, UsagePercent: use}, Memory: &wire.Memory{Total: 8, Used: uint64(use)}, Uptime: uint64(use)}
}

func heardAt(after time.Duration, edit ...func(*word)) word {
	w := word{}
	w.register(clock, robotv1.ProtocolK8s4r, wire.Register{AgentVersion: "1", DeviceInfo: device(1)})
	w.waits = false
	w.hear(clock.Add(after))
	for _, e := range edit {
		e(&w)
	}
	return w
}

func TestWhatFollowsFromARobotsLastWord(t *testing.T) {
	for _, row := range []struct {
		name   string
		robot  *robotv1.Robot
		word   word
		silent time.Duration // since the last that was heard
		create bool
		write  bool
		answer bool
		warn   bool
	}{
		{name: "a robot that registers for the first time gets an object", word: heardAt(0, func(w *word) { w.waits = true }), create: true},
		{name: "a robot that nobody knows and that did not register gets none", word: heardAt(0)},
		{name: "a new object gets its status",
			robot: newRobot(namespace, "r1", nil, word{}), word: heardAt(0, func(w *word) { w.waits = true }), write: true},
		{name: "a robot that waits for its approval gets no answer",
			robot: known("Pending"), word: heardAt(0, func(w *word) { w.waits = true })},
		{name: "an approved robot gets its answer",
			robot: known("online"), word: heardAt(0, func(w *word) { w.waits = true }), answer: true},
		{name: "an answer is given once", robot: known("Online"), word: heardAt(0)},
		{name: "a heartbeat soon after the last is not worth a write", robot: known("Online"), word: heardAt(30 * time.Second)},
		{name: "use and uptime are not worth a write",
			robot: known("Online"), word: heardAt(time.Second, func(w *word) { w.device = device(99) })},
		{name: "another device is",
			robot: known("Online"), word: heardAt(time.Second, func(w *word) { w.device = &wire.DeviceInfo{Hostname: "other"} }), write: true},
		{name: "another version is",
			robot: known("Online"), word: heardAt(time.Second, func(w *word) { w.version = "2" }), write: true},
		{name: "before a third of offlineAfter is over the heartbeat is written",
			robot: known("Online"), word: heardAt(offlineAfter * 2 / 9), write: true},
		{name: "what was heard last is written when a third of offlineAfter is over, though nothing follows it",
			robot: known("Online"), word: heardAt(30 * time.Second), silent: offlineAfter/3 - 30*time.Second, write: true},
		{name: "and not before", robot: known("Online"), word: heardAt(30 * time.Second), silent: offlineAfter/3 - 31*time.Second},
		{name: "what an object cannot say more exactly is written once",
			robot: known("Online"), word: heardAt(300 * time.Nanosecond), silent: offlineAfter - time.Second},
		{name: "what a heartbeat of ours is not covered by is written, so that it can be acknowledged",
			robot: known("Online", func(s *robotv1.RobotStatus) { s.AcknowledgedUntil = nil }),
			word:  heardAt(time.Second, func(w *word) { w.beats = 7 }), write: true},
		{name: "an offline robot that speaks is written at once", robot: known("Offline"), word: heardAt(time.Second), write: true},
		{name: "a time that lies ahead of our clock is due",
			robot: known("Online", func(s *robotv1.RobotStatus) {
				s.LastHeartbeatTime = &metav1.MicroTime{Time: clock.Add(time.Hour)}
			}), word: heardAt(time.Second), write: true},
		{name: "a last will is written",
			robot: known("Online"), word: heardAt(0, func(w *word) { w.gone = robotv1.ReasonLastWill }), write: true},
		{name: "that a robot has fallen silent is written",
			robot: known("Offline"), word: heardAt(0, func(w *word) { w.gone = robotv1.ReasonSilent }), write: true},
		{name: "once", robot: known("Offline", fallenSilent), word: heardAt(0, func(w *word) { w.gone = robotv1.ReasonSilent })},
		{name: "a robot that speaks again after it has been silent is written at once",
			robot: known("Unknown", fallenSilent), word: heardAt(time.Millisecond), write: true},
		{name: "a deaf robot is shown, with a warning",
			robot: known("Online"), word: heardAt(0, func(w *word) { w.deaf = true }), write: true, warn: true},
		{name: "the warning comes once",
			robot: known("Online", func(s *robotv1.RobotStatus) {
				meta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: robotv1.ConditionResponsive, Status: metav1.ConditionFalse, Reason: "NoAnswer", Message: messageDeaf})
			}), word: heardAt(0, func(w *word) { w.deaf = true })},
		{name: "a server that has just started has nothing to write", robot: known("Online"), word: word{}},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := planRobot(row.word.heard.Add(row.silent), "r1", row.word, row.robot, offlineAfter)
			got := fmt.Sprint(s.create, s.status != nil, s.answer != nil, s.warning)
			if want := fmt.Sprint(row.create, row.write, row.answer, row.warn); got != want {
				t.Errorf("create, write, answer, warn: %s, want %s\nstatus %+v", got, want, s.status)
			}
		})
	}
}

func fallenSilent(s *robotv1.RobotStatus) {
	w := word{gone: robotv1.ReasonSilent}
	setConnected(s, w)
}

func TestATimeThatLiesAheadOfOurClockIsSetBack(t *testing.T) {
	ahead := known("Online", func(s *robotv1.RobotStatus) { s.LastHeartbeatTime = &metav1.MicroTime{Time: clock.Add(time.Hour)} })
	s := planRobot(clock.Add(time.Second), "r1", heardAt(time.Second), ahead, offlineAfter)
	if s.status == nil || !s.status.LastHeartbeatTime.Time.Equal(clock.Add(time.Second)) {
		t.Errorf("status %+v: the robot looks dead until the clock has caught up", s.status)
	}
}

// A robot that falls silent is offline when its last heartbeat says so, whenever
// that came after one that was written, and stays so.
func TestASilentRobotIsOfflineOnce(t *testing.T) {
	for beats := range 40 {
		r, w := known("Online"), heardAt(0)
		last := clock.Add(time.Duration(beats) * 10 * time.Second)
		var offline time.Time
		writes := 0
		for now := clock; now.Before(last.Add(2 * offlineAfter)); now = now.Add(time.Second) {
			if now.Sub(clock)%(10*time.Second) == 0 && !now.After(last) {
				w.beat(now, robotv1.ProtocolK8s4r, wire.Heartbeat{N: 1})
			}
			if s := planRobot(now, "r1", w, r, offlineAfter); s.status != nil {
				if !offline.IsZero() {
					t.Fatalf("%d heartbeats: a word of %s looks like a return at %s", beats, w.heard.Sub(clock), now.Sub(clock))
				}
				r.Status = *s.status
				writes++
			}
			if offline.IsZero() && now.Sub(r.Status.LastHeartbeatTime.Time) >= offlineAfter { // so the manager sees it
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

// The manager counts a robot's own fence from what is written.
func TestAHeartbeatIsAcknowledgedOnlyAsFarAsItIsWritten(t *testing.T) {
	r := known("Online")
	for after, want := range map[time.Duration]bool{0: true, offlineAfter / 3: true, offlineAfter/3 + time.Microsecond: false} {
		if got := acknowledges(r.Status, clock.Add(after)); got != want {
			t.Errorf("heard %s after what is written: acknowledged %v", after, got)
		}
	}
	if acknowledges(robotv1.RobotStatus{}, clock) {
		t.Error("acknowledged what nobody has written")
	}
}

// What a certificate has proven to a broker does not prove anything to a server
// that the network may say anything to.
func TestARobotBehindAPlaintextBrokerIsNotSureToBeItself(t *testing.T) {
	w, r := heardAt(0), known("Online")
	r.Status.Identity = joined("r1").Status.Identity
	w.plaintext = true
	c := meta.FindStatusCondition(nextRobotStatus(r.Status, w, offlineAfter).Conditions, robotv1.ConditionAuthenticated)
	if c == nil || c.Status != metav1.ConditionFalse || c.Reason != robotv1.ReasonPlaintextBroker {
		t.Errorf("%+v", c)
	}
	of := newRobots(Config{MQTTURL: "mqtt://broker:1883"}.PlaintextBroker())
	of.change("r1", true, func(w *word) { w.hear(clock) })
	if !of.get("r1").plaintext {
		t.Error("nobody remembers how the robot is heard")
	}
}

func TestANewRobotWaitsForItsApproval(t *testing.T) {
	s := planRobot(clock, "r1", heardAt(0), newRobot(namespace, "r1", nil, word{}), offlineAfter)
	if s.status.Phase != "Pending" || s.status.Message != "Registration received, waiting for approval" || s.status.Agent.Protocol != "k8s4r" {
		t.Errorf("status %+v", s.status)
	}
}

func TestHeartbeatWritesAreSpreadAndInTime(t *testing.T) {
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

func TestLabelsOfARobot(t *testing.T) {
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
		got := labels{all: row.all, own: row.own}.reported(row.said)
		if !maps.Equal(got.all, row.wantAll) || !maps.Equal(got.own, row.wantOwn) {
			t.Errorf("%s: %v, own %v", row.name, got.all, got.own)
		}
		r := newRobot(namespace, "r1", nil, word{})
		got.write(r)
		if read := labelsOf(r); !read.equal(got) {
			t.Errorf("%s: written down it is %v", row.name, read)
		}
		if again := got.reported(row.said); !again.equal(got) {
			t.Errorf("%s: it is not content with what it wrote: %v", row.name, again)
		}
	}
	many := m{}
	for i := range 200 {
		many[fmt.Sprint(i)] = "x"
	}
	if got := (labels{}).reported(many); len(got.all) != maxLabels || !got.equal(got.reported(many)) {
		t.Errorf("%d labels", len(got.all))
	}
	damaged := newRobot(namespace, "r1", m{"a": "person"}, word{})
	damaged.Annotations = m{annotationOwnLabels: "no JSON"}
	if got := labelsOf(damaged).reported(nil); !maps.Equal(got.all, m{"a": "person"}) {
		t.Errorf("of a note that cannot be read: %v", got)
	}
}

// A heartbeat says nothing of labels, and takes none away.
func TestLabelsGoAwayOnlyWithARegistration(t *testing.T) {
	r := newRobot(namespace, "r1", map[string]string{"site": "hall"}, word{labels: map[string]string{"arm": "left"}})
	if s := planRobot(clock, "r1", heardAt(0, func(w *word) { w.registered = time.Time{} }), r, offlineAfter); s.labels != nil {
		t.Errorf("a heartbeat: %v", s.labels)
	}
	s := planRobot(clock, "r1", heardAt(0, func(w *word) { w.registered = clock }), r, offlineAfter)
	if s.labels == nil || !maps.Equal(s.labels.all, map[string]string{"site": "hall"}) {
		t.Errorf("a registration without any: %v", s.labels)
	}
}

func TestStrangersAreBounded(t *testing.T) {
	r := newRobots(false)
	for i := range maxStrangers {
		r.change(fmt.Sprint(i), false, func(w *word) { w.hear(clock) })
	}
	if r.change("one-more", false, func(*word) {}) {
		t.Error("one more was remembered")
	}
	if !r.change("known", true, func(*word) {}) {
		t.Error("a known robot was refused")
	}
	r.settle(func(id string) bool { return id == "known" }, clock.Add(time.Hour), time.Minute)
	if n := len(r.words); n != 1 {
		t.Errorf("%d are remembered", n)
	}
}
