package task

import (
	"slices"
	"testing"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// TestPlan_RefusalsOfPoliciesAreNoFailures shows that a robot that refuses a task is not used for it
// again, and that only robots on which it failed count for softFailLimit.
func TestPlan_RefusalsOfPoliciesAreNoFailures(t *testing.T) {
	refused := newInput(lifecycle.TaskExited, reason(wire.ReasonPolicyViolation), capable, failedOn("r8"))
	if got := Plan(noon, refused).Status; got == nil || !slices.Equal(got.FailedRobots, []string{"r8", "r1"}) {
		t.Fatalf("status %+v, want the robots r8 and r1 to be excluded", got)
	}
	failed := newInput(lifecycle.TaskExited, reason(wire.ReasonExited), capable, failedOn("r7", "r8", "r9"), softFailLimit(2), func(w *Input) {
		for i, robot := range []string{"r7", "r8", "r9"} {
			w.Task.Status.Attempts = append([]v1alpha1.TaskAttempt{{Attempt: int32(-i), Robot: robot, Reason: wire.ReasonPolicyViolation}}, w.Task.Status.Attempts...)
		}
	})
	if got := Plan(noon, failed).Status; got == nil || got.State != string(lifecycle.TaskSoftFailed) {
		t.Errorf("status %+v, want a first failure", got)
	}
}
