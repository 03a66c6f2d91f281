package lifecycle

import "testing"

// vcjobEdges is the whole table once more, in the words of section 2 of the
// contract, so that a changed edge is a changed test.
var vcjobEdges = map[VCJobPhase]map[VCJobSignal]VCJobPhase{
	"Pending": {
		"restart": "Restarting", "abort": "Aborting", "complete": "Completing", "terminate": "Terminating",
		"ready": "Running", "unsuccessful": "Failed", "invalid": "Failed",
	},
	"Running": {
		"restart": "Restarting", "abort": "Aborting", "complete": "Completing", "terminate": "Terminating",
		"unready": "Pending", "succeeded": "Completed", "unsuccessful": "Failed", "invalid": "Failed",
	},
	"Restarting": {
		"abort": "Aborting", "complete": "Completing", "terminate": "Terminating",
		"restartable": "Pending", "exhausted": "Failed",
	},
	"Aborting":    {"resume": "Restarting", "stopped": "Aborted"},
	"Aborted":     {"resume": "Restarting"},
	"Completing":  {"stopped": "Completed"},
	"Terminating": {"stopped": "Terminated"},
}

func TestStepVCJob_EveryPhaseAndSignal(t *testing.T) {
	for _, p := range VCJobPhases {
		for _, g := range VCJobSignals {
			want, wantOK := vcjobEdges[p][g]
			if !wantOK {
				want = p
			}
			if got, ok := StepVCJob(p, g); got != want || ok != wantOK {
				t.Errorf("%s in %s: %s %v, want %s %v", g, p, got, ok, want, wantOK)
			}
		}
	}
	if got, ok := StepVCJob("", VCJobReady); got != VCJobRunning || !ok {
		t.Errorf("a new Job becomes %s, want the edges of Pending", got)
	}
}

func TestVCJobPhase_Predicates(t *testing.T) {
	for _, p := range VCJobPhases {
		if p.IsFinished() != (len(vcjobTable[p]) == 0) {
			t.Errorf("%s: finished %v, with %d edges out", p, p.IsFinished(), len(vcjobTable[p]))
		}
		if p.IsFinished() && !p.IsSettled() || p.ManagesPods() && p.IsSettled() {
			t.Errorf("%s: IsFinished %v, IsSettled %v, ManagesPods %v", p, p.IsFinished(), p.IsSettled(), p.ManagesPods())
		}
	}
	if !VCJobAborted.IsSettled() || !VCJobPhase("").ManagesPods() {
		t.Error("IsSettled of an aborted Job or ManagesPods of a new one is false")
	}
}
