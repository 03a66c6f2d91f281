package job

import (
	"math"
	"testing"
	"time"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/testkit/extreme"
)

// TestPlan_ExtremeFields sets each field of a Job to 2^31-1 or to 1 MiB: whatever admission lets
// through, a plan is small and its counts can be stored.
func TestPlan_ExtremeFields(t *testing.T) {
	newJob := func() *v1alpha1.Job { return newInput("pending").Job }
	for _, c := range extreme.Cases(newJob, func(j *v1alpha1.Job) any { return &j.Spec }) {
		j := newJob()
		c.Set(j)
		t.Run(c.Path, func(t *testing.T) {
			var actions Actions
			extreme.RequireBounded(t, func() { actions = Plan(noon, time.Second, Input{Job: j}) })
			if s := actions.Status; s != nil && (s.TotalTasks < 0 || s.PendingTasks < 0) {
				t.Errorf("counts overflow: %+v", s.TaskCounts)
			}
		})
	}
}

// TestPlan_CountsDoNotOverflow counts more tasks than a status can hold.
func TestPlan_CountsDoNotOverflow(t *testing.T) {
	in := newInput("pending")
	many := int32(math.MaxInt32)
	for i := range in.Job.Spec.TaskGroups {
		in.Job.Spec.TaskGroups[i].Count = &many
	}
	if s := Plan(noon, 0, in).Status; s == nil || s.TotalTasks != math.MaxInt32 {
		t.Errorf("%+v", s)
	}
}
