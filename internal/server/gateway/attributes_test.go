package gateway

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
)

func templated(name string, state lifecycle.TaskState, templates int) *robotv1.Task {
	t := newBoundTask(name, "r1")
	t.ResourceVersion, t.Status.State = "5", string(state)
	t.Spec.Templates = make([]robotv1.Template, templates)
	return t
}

func TestGateway_ResendsTemplatesWhenAttributesChange(t *testing.T) {
	v := newObjectIndex()
	for _, task := range []*robotv1.Task{
		templated("running", lifecycle.TaskRunning, 1), templated("without", lifecycle.TaskRunning, 0),
		templated("later", lifecycle.TaskDispatching, 1), templated("ended", lifecycle.TaskCompleted, 1),
	} {
		v.deliverTask(task)
	}
	var told []string
	f := &attributeWatcher{objects: v, send: func(t *robotv1.Task) { told = append(told, t.Name) }}
	see := func(labels map[string]string, message string) {
		f.recordAttributes(&robotv1.Robot{
			ObjectMeta: metav1.ObjectMeta{Name: "r1", UID: types.UID("r1")},
			Spec:       robotv1.RobotSpec{Labels: labels}, Status: robotv1.RobotStatus{Message: message},
		})
	}
	see(map[string]string{"site": "hall"}, "") // the server starts
	see(map[string]string{"site": "hall"}, "a heartbeat")
	if len(told) > 0 {
		t.Errorf("%v are told of nothing new", told)
	}
	see(map[string]string{"site": "yard"}, "")
	if !slices.Equal(told, []string{"running"}) {
		t.Errorf("%v are told, want the one that runs and has templates", told)
	}
}

func TestDispatch_HasRequestedRobotAttributes(t *testing.T) {
	r := &robotv1.Robot{
		ObjectMeta: metav1.ObjectMeta{Name: "r1", Labels: map[string]string{"a": "1", "b": "1"}},
		Spec:       robotv1.RobotSpec{Labels: map[string]string{"b": "2"}},
	}
	rows := map[string]struct {
		change func(*robotv1.TaskDefinition)
		asks   bool
	}{
		"nothing":    {func(*robotv1.TaskDefinition) {}, false},
		"its shell":  {func(d *robotv1.TaskDefinition) { d.Config.ExecConfig.Args = []string{"${HOME}"} }, false},
		"an arg":     {func(d *robotv1.TaskDefinition) { d.Config.ExecConfig.Args = []string{"--site=${robot.labels.site}"} }, true},
		"a command":  {func(d *robotv1.TaskDefinition) { d.Config.ExecConfig.Command = "tool-${robot.attr.arch}" }, true},
		"a variable": {func(d *robotv1.TaskDefinition) { d.Env = map[string]string{"SITE": "${robot.labels.site}"} }, true},
		"a template": {func(d *robotv1.TaskDefinition) { d.Templates = make([]robotv1.Template, 1) }, true},
	}
	for name, row := range rows {
		task := newBoundTask("t", "r1")
		row.change(&task.Spec.TaskDefinition)
		got := attributesFor(task, r)
		if (got != nil) != row.asks {
			t.Errorf("who asks for %s is sent %+v", name, got)
		}
		if got != nil && (got.Labels["a"] != "1" || got.Labels["b"] != "2" || got.Attrs["name"] != "r1") {
			t.Errorf("who asks for %s is sent %+v, want labels of both places, spec's first, and attributes", name, got)
		}
	}
}
