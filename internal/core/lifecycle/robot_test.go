package lifecycle

import "testing"

func TestStepRobot_EveryPhaseAndSignal(t *testing.T) {
	want := map[RobotPhase]map[RobotSignal]RobotPhase{
		RobotPending: {RobotApproved: RobotOnline},
		RobotOnline:  {RobotDisconnected: RobotUnknown, RobotUnresponsive: RobotOffline},
		RobotUnknown: {RobotConnected: RobotOnline, RobotUnresponsive: RobotOffline},
		RobotOffline: {RobotConnected: RobotOnline},
	}
	for _, p := range RobotPhases {
		for _, g := range RobotSignals {
			wantTo, wantOK := want[p][g]
			if !wantOK {
				wantTo = p
			}
			if to, ok := StepRobot(p, g); to != wantTo || ok != wantOK {
				t.Errorf("%s by %s: %s, %v; want %s, %v", p, g, to, ok, wantTo, wantOK)
			}
		}
	}
}

func TestParseRobotPhase(t *testing.T) {
	for _, c := range []struct {
		name, in string
		want     RobotPhase
	}{
		{"a new robot is pending", "", RobotPending},
		{"small letters are in the field", "online", RobotOnline},
		{"capital letters are in the field", "Offline", RobotOffline},
		{"what is no phase gets no work", "napping", RobotUnknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := ParseRobotPhase(c.in); got != c.want {
				t.Errorf("%q reads as %s, want %s", c.in, got, c.want)
			}
		})
	}
}
