package task

import (
	"encoding/json"
	"testing"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/testkit/extreme"
)

// maxStatusText is more than any status of a Task needs, and less than the API server stores.
const maxStatusText = 256 << 10

// TestPlan_ExtremeFields sets each field of a Task, and of the Job with its policies, to 2^31-1 or to
// 1 MiB: whatever admission lets through, a plan is small and the status can be stored.
func TestPlan_ExtremeFields(t *testing.T) {
	states := []lifecycle.TaskState{lifecycle.TaskPending, lifecycle.TaskRunning, lifecycle.TaskUnknown, lifecycle.TaskExited}
	newTask := func() *v1alpha1.Task { return newInput(lifecycle.TaskPending).Task }
	for _, c := range extreme.Cases(newTask, func(o *v1alpha1.Task) any { return &o.Spec }) {
		if c.Path == ".spec.name" {
			continue // conditions contain it, and the schema, which is always ours, allows 63 characters
		}
		for _, state := range states {
			in := newInput(state)
			c.Set(in.Task)
			t.Run("task"+c.Path+"/"+string(state), func(t *testing.T) { requireSmallPlan(t, in) })
		}
	}
	newJob := func() *v1alpha1.Job { return newInput(lifecycle.TaskPending).Job }
	for _, c := range extreme.Cases(newJob, func(o *v1alpha1.Job) any { return &o.Spec }) {
		for _, state := range states {
			in := newInput(state)
			c.Set(in.Job)
			t.Run("job"+c.Path+"/"+string(state), func(t *testing.T) { requireSmallPlan(t, in) })
		}
	}
}

func requireSmallPlan(t *testing.T, in Input) {
	t.Helper()
	var actions Actions
	extreme.RequireBounded(t, func() { actions = Plan(noon, in) })
	text, err := json.Marshal(actions.Status)
	if err != nil || len(text) > maxStatusText {
		t.Errorf("the status has %d bytes: %v", len(text), err)
	}
}
