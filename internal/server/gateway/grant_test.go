package gateway

import (
	"testing"
	"time"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// grantFrom returns the grant in a status that this server has written at that uptime.
func grantFrom(s robotv1.RobotStatus, from time.Duration) ackGrant {
	return ackGrant{until: s.AcknowledgedUntil.Time, from: from, period: grantPeriod(offlineAfter)}
}

func TestCoversHeartbeat_RequiresGrantOfThisServer(t *testing.T) {
	r := newKnownRobot("Online")
	for after, want := range map[time.Duration]bool{0: true, offlineAfter / 3: true, offlineAfter/3 + time.Microsecond: false} {
		w := robotState{grant: grantFrom(r.Status, time.Hour), uptime: time.Hour + after}
		if got := w.coversHeartbeat(r.Status); got != want {
			t.Errorf("%s after the write: covered %v", after, got)
		}
	}
	if w := (robotState{}); w.coversHeartbeat(r.Status) {
		t.Error("a grant of another server counts")
	}
	if w := (robotState{}); w.coversHeartbeat(robotv1.RobotStatus{}) {
		t.Error("a status without a grant counts")
	}
}

// The server must write a new grant before it acknowledges a heartbeat after its period, however its
// clock is set meanwhile, and the manager must see that it is another one.
func TestPlanRobot_WritesNewGrantWhateverTheClock(t *testing.T) {
	for name, step := range map[string]time.Duration{
		"right": 0, "set forward": 24 * time.Hour, "set back": -24 * time.Hour, "set back to the last heartbeat": -offlineAfter/3 - time.Minute,
	} {
		r := newKnownRobot("Online")
		states := newRobotStates(false, func() time.Duration { return offlineAfter/3 + time.Minute })
		now := clock.Add(offlineAfter/3 + time.Minute + step)
		states.updateState("r1", true, func(w *robotState) {
			*w = seenAt(0)
			w.grant = grantFrom(r.Status, 0)
			w.recordHeartbeat(now, robotv1.ProtocolV2, wire.Heartbeat{Seq: 1})
		})
		w := states.stateOf("r1")
		if w.coversHeartbeat(r.Status) {
			t.Errorf("%s: the heartbeat is covered by an old grant", name)
		}
		s := planRobot(now, "r1", w, r, offlineAfter)
		if s.status == nil || s.status.AcknowledgedUntil.Equal(r.Status.AcknowledgedUntil) {
			t.Errorf("%s: no new grant: %+v", name, s.status)
			continue
		}
		states.recordGrant("r1", w, *s.status, offlineAfter)
		if w := states.stateOf("r1"); !w.coversHeartbeat(*s.status) {
			t.Errorf("%s: the heartbeat is not covered", name)
		}
	}
}

// A write that does not change the grant does not prolong it.
func TestRecordGrant_KeepsStartOfUnchangedGrant(t *testing.T) {
	r := newKnownRobot("Online")
	var uptime time.Duration
	states := newRobotStates(false, func() time.Duration { return uptime })
	for _, uptime = range []time.Duration{0, 1} {
		states.recordGrant("r1", states.stateOf("r1"), r.Status, offlineAfter)
	}
	if got := states.stateOf("r1").grant.from; got != 0 {
		t.Errorf("the grant counts from %s", got)
	}
}
