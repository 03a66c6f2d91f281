package gateway

import (
	"testing"
	"time"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
)

func TestCoversHeartbeat_RequiresSliceInStatus(t *testing.T) {
	named := robotv1.RobotStatus{HeartbeatSlice: "heartbeats-0"}
	for _, row := range []struct {
		name   string
		state  robotState
		status robotv1.RobotStatus
		want   bool
	}{
		{"covered by the slice that the status names", robotState{slice: "heartbeats-0", isCovered: true}, named, true},
		{"not covered", robotState{slice: "heartbeats-0"}, named, false},
		{"the status names no slice yet", robotState{slice: "heartbeats-0", isCovered: true}, robotv1.RobotStatus{}, false},
		{"the status names an earlier slice", robotState{slice: "heartbeats-1", isCovered: true}, named, false},
		{"neither has one", robotState{}, robotv1.RobotStatus{}, false},
	} {
		if got := row.state.coversHeartbeat(row.status); got != row.want {
			t.Errorf("%s: %v", row.name, got)
		}
	}
}

func TestAckGrant_CoversOnlyItsPeriod(t *testing.T) {
	g := ackGrant{time: clock, from: time.Hour, period: time.Minute}
	for after, want := range map[time.Duration]bool{0: true, time.Minute: true, time.Minute + 1: false} {
		if got := g.covers(clock, time.Hour+after); got != want {
			t.Errorf("%s after the write: %v", after, got)
		}
	}
	if g.covers(clock.Add(time.Second), time.Hour) {
		t.Error("a time that another program has written counts")
	}
	if (ackGrant{}).covers(time.Time{}, 0) {
		t.Error("a robot without a time is covered")
	}
}
