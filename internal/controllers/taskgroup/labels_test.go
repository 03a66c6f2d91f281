package taskgroup

import (
	"testing"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/placement"
)

func TestNewTask_HasLabelsWithAndWithoutPrefix(t *testing.T) {
	g := &v1alpha1.TaskGroup{Spec: v1alpha1.TaskGroupSpec{JobName: "survey", GroupName: "cameras"}}
	g.Name = "survey-cameras"
	got := (taskBuilder{group: g}).buildTask("survey-cameras-3-main", 3, &v1alpha1.TaskDefinition{Name: "main"}, placement.Robot{}).Labels
	for label, want := range map[string]string{
		"job": "survey", "taskgroup": "survey-cameras", "taskindex": "3",
		"robot.k8s4r.io/job": "survey", "robot.k8s4r.io/taskgroup": "survey-cameras", "robot.k8s4r.io/taskindex": "3",
	} {
		if got[label] != want {
			t.Errorf("label %s is %q, want %q", label, got[label], want)
		}
	}
}
