package task

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/placement/apiconv"
)

func TestPlan_WritesRejectionsUntilATaskIsPlaced(t *testing.T) {
	w := newInput(lifecycle.TaskPending, rejected)
	waits := Plan(noon, w).Status
	if waits == nil || !equality.Semantic.DeepEqual(waits.Placement, apiconv.PlacementStatusFrom(noRobotFits)) {
		t.Fatalf("status %+v", waits)
	}
	if c := meta.FindStatusCondition(waits.Conditions, v1alpha1.ConditionPlaced); c == nil || c.Message != noRobotFitsMessage {
		t.Errorf("condition %+v", c)
	}

	w.Task.Status = *waits
	if again := Plan(noon, w).Status; again != nil {
		t.Errorf("the same rejections are written again: %+v", again)
	}

	byJob := w
	byJob.Job = nil
	if s := Plan(noon, byJob).Status; s == nil || s.Placement != nil {
		t.Errorf("a task that waits for its job keeps rejections: %+v", s)
	}

	reserved(&w)
	w.Rejected = nil
	if placed := Plan(noon.Add(time.Second), w).Status; placed == nil || placed.Attempt != 1 || placed.Placement != nil {
		t.Errorf("a placed task keeps rejections: %+v", placed)
	}
}

// The robot was blocked after the scheduler had reserved it.
func TestPlan_DispatchesNothingToBlockedRobot(t *testing.T) {
	w := newInput(lifecycle.TaskPending, reserved)
	w.Group, w.HasCapableRobot = &v1alpha1.TaskGroup{}, true
	if s := Plan(noon, w).Status; s == nil || s.Attempt != 1 {
		t.Fatalf("not dispatched: %+v", s)
	}
	w.Group.Status.BlockedRobots = []string{"r1"}
	if s := Plan(noon, w).Status; s != nil && s.Attempt != 0 {
		t.Errorf("dispatched to a blocked robot: %+v", s)
	}
}
