package cli

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/testkit/golden"
)

// usedField returns robots and tasks of which some have reported their usage.
func usedField() []client.Object {
	measured := &robotv1.Robot{ObjectMeta: metaOf("robot-1")}
	then := metav1.NewTime(noon.Add(-2 * time.Hour))
	measured.Status.DeviceInfo = &robotv1.DeviceInfo{LastUpdated: &then,
		CPU: &robotv1.CPU{LogicalCores: 4, UsagePercent: 12.5}, Memory: &robotv1.Memory{Total: 8 << 30, Used: 2 << 30, UsagePercent: 25}}
	silent := &robotv1.Robot{ObjectMeta: metaOf("robot-2")}
	cpu, memory := resource.MustParse("500m"), resource.MustParse("128Mi")
	on := func(robot, state string, use *robotv1.ResourceUse) func(*robotv1.Task) {
		return func(t *robotv1.Task) {
			t.Spec.TargetRobot, t.Status.State, t.Status.Attempt, t.Status.Resources = robot, state, 1, use
			t.Spec.Resources = &robotv1.Resources{CPU: &cpu, Memory: &memory}
		}
	}
	free := task("demo", "inspect", 2, on("robot-1", "running", &robotv1.ResourceUse{CPUPercent: 150, MemoryBytes: 10 << 20}))
	free.Spec.Resources = nil
	return []client.Object{
		measured, silent, free,
		task("demo", "inspect", 0, on("robot-1", "running", &robotv1.ResourceUse{CPUPercent: 50, MemoryBytes: 64 << 20})),
		task("demo", "inspect", 1, on("robot-2", "running", nil)),
		task("demo", "inspect", 3, on("robot-1", "completed", &robotv1.ResourceUse{CPUSeconds: 9, MemoryPeakBytes: 1 << 30})),
	}
}

func TestTop_MatchesGolden(t *testing.T) {
	for _, row := range []struct {
		name, golden string
		args         []string
	}{
		{"robots", "top-robots", []string{"top", "robots"}},
		{"robots, wide, everywhere", "top-robots-wide", []string{"top", "robots", "-A", "-o", "wide", "--sort-by", "cpu"}},
		{"tasks", "top-tasks", []string{"top", "tasks", "-o", "wide"}},
		{"tasks by memory", "top-tasks-sorted", []string{"top", "tasks", "--sort-by", "memory"}},
		{"no tasks", "top-none", []string{"top", "tasks", "-l", "job=other"}},
		{"an unknown order", "top-unknown-order", []string{"top", "tasks", "--sort-by", "name"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := newBench(t, usedField()...)
			golden.Equal(t, row.golden, b.transcript(b.run(row.args...)))
		})
	}
}
