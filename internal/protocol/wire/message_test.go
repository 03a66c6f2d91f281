package wire

import "testing"

func TestIsWithoutFault(t *testing.T) {
	for reason, want := range map[string]bool{
		ReasonStopped: true, ReasonAgentStopped: true, ReasonAgentRestarted: true, ReasonRobotRebooted: true, ReasonSuperseded: true,
		ReasonTimeout: false, ReasonStartFailed: false, ReasonExited: false, ReasonSignaled: false, ReasonRejected: false, "": false,
	} {
		if got := IsWithoutFault(reason); got != want {
			t.Errorf("%q: %v", reason, got)
		}
	}
}
