package taskgroup

import (
	"fmt"
	"math"
	"testing"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/testkit/extreme"
)

// TestPlan_ExtremeFields sets each field of a TaskGroup to 2^31-1 or to 1 MiB: whatever admission
// lets through, a plan is small, and so are the Tasks that follow from it.
func TestPlan_ExtremeFields(t *testing.T) {
	newGroup := func() *v1alpha1.TaskGroup { return newInput(1000).Group }
	for _, c := range extreme.Cases(newGroup, func(g *v1alpha1.TaskGroup) any { return &g.Spec }) {
		g := newGroup()
		c.Set(g)
		for _, kind := range []string{v1alpha1.JobTypeBatch, v1alpha1.JobTypeService} {
			t.Run(c.Path+"/"+kind, func(t *testing.T) { requireSmallPlan(t, g, kind) })
		}
	}
}

func requireSmallPlan(t *testing.T, g *v1alpha1.TaskGroup, kind string) {
	t.Helper()
	in := newInput(1)
	in.Group, in.Job.Spec.Type = g, kind
	var actions Actions
	extreme.RequireBounded(t, func() {
		newGroupCounts().withGroup(g.UID, func(m *groupTasks) { m.fillInput(&in, nil) })
		actions = Plan(noon, Config{}.WithDefaults(), in)
		demands := buildDemands(g, actions.Reserve, nil)
		in.newTaskBuilder().buildTasks(actions.Reserve, demands, nil, len(demands))
	})
	if n := len(actions.Reserve); n > maxReplicasPerPlan {
		t.Errorf("%d replicas in one plan", n)
	}
	if s := actions.Status; s != nil && s.TotalTasks < 0 {
		t.Errorf("counts overflow: %+v", s.TaskCounts)
	}
}

// TestPlan_LargeDefinitionsInBatches bounds the memory of a plan of tasks that are kept running.
func TestPlan_LargeDefinitionsInBatches(t *testing.T) {
	in := newInput(math.MaxInt32)
	in.Job.Spec.Type = v1alpha1.JobTypeService
	env := map[string]string{}
	for i := range 10_000 {
		env[fmt.Sprintf("VARIABLE_%d", i)] = "x"
	}
	in.Group.Spec.Tasks[0].Env = env
	newGroupCounts().withGroup("g", func(m *groupTasks) { m.fillInput(&in, nil) })
	actions := Plan(noon, Config{}.WithDefaults(), in)
	if n := len(actions.Reserve); n == 0 || n > 64 {
		t.Errorf("%d replicas with large definitions in one plan", n)
	}
}
