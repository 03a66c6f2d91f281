package lifecycle

import "testing"

func TestStepFlow_EveryPhaseAndSignal(t *testing.T) {
	want := map[FlowPhase]map[FlowSignal]FlowPhase{
		"":          {FlowStarted: FlowRunning, FlowStepsEnded: FlowSucceed, FlowStepFailed: FlowFailed, FlowCancel: FlowTerminating, FlowDelete: FlowTerminating, FlowRetry: FlowPending},
		FlowPending: {FlowStarted: FlowRunning, FlowStepsEnded: FlowSucceed, FlowStepFailed: FlowFailed, FlowCancel: FlowTerminating, FlowDelete: FlowTerminating, FlowRetry: FlowPending},
		FlowRunning: {FlowStepsEnded: FlowSucceed, FlowStepFailed: FlowFailed, FlowCancel: FlowTerminating, FlowDelete: FlowTerminating, FlowRetry: FlowRunning},
		// A flow that has succeeded has nothing to cancel.
		FlowSucceed:     {FlowDelete: FlowTerminating, FlowRetry: FlowPending},
		FlowFailed:      {FlowCancel: FlowTerminating, FlowDelete: FlowTerminating, FlowRetry: FlowPending},
		FlowTerminating: {FlowStopped: FlowFailed},
	}
	for _, p := range append([]FlowPhase{""}, FlowPhases...) {
		for _, g := range FlowSignals {
			wantTo, wantOK := want[p][g]
			if wantTo == "" {
				wantTo = p
			}
			if wantTo == "" {
				wantTo = FlowPending
			}
			if to, ok := StepFlow(p, g); to != wantTo || ok != wantOK {
				t.Errorf("%q by %s: %s, %v; want %s, %v", p, g, to, ok, wantTo, wantOK)
			}
		}
	}
}

func TestFlowPhase_Predicates(t *testing.T) {
	for _, p := range FlowPhases {
		if p.IsTerminal() != (p == FlowSucceed || p == FlowFailed) || p.StartsSteps() != (p == FlowPending || p == FlowRunning) {
			t.Errorf("%s: terminal %v, starts %v", p, p.IsTerminal(), p.StartsSteps())
		}
	}
	if FlowPhase("").IsTerminal() || !FlowPhase("").StartsSteps() {
		t.Error("StartsSteps is false for a new flow")
	}
}
