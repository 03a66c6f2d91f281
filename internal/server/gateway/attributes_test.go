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
	var resent []string
	f := &attributeWatcher{objects: v, send: func(t *robotv1.Task) { resent = append(resent, t.Name) }}
	see := func(labels map[string]string, message string) {
		f.recordAttributes(&robotv1.Robot{
			ObjectMeta: metav1.ObjectMeta{Name: "r1", UID: types.UID("r1")},
			Spec:       robotv1.RobotSpec{Labels: labels}, Status: robotv1.RobotStatus{Message: message},
		})
	}
	see(map[string]string{"site": "hall"}, "") // the server starts
	see(map[string]string{"site": "hall"}, "a heartbeat")
	if len(resent) > 0 {
		t.Errorf("attributes are unchanged, but %v are sent again", resent)
	}
	see(map[string]string{"site": "yard"}, "")
	if !slices.Equal(resent, []string{"running"}) {
		t.Errorf("%v are sent again, want only the running task with templates", resent)
	}
}

func TestDispatch_HasRequestedRobotAttributes(t *testing.T) {
	r := &robotv1.Robot{
		ObjectMeta: metav1.ObjectMeta{Name: "r1", Labels: map[string]string{"a": "1", "b": "1"}},
		Spec:       robotv1.RobotSpec{Labels: map[string]string{"b": "2"}},
	}
	rows := map[string]struct {
		change func(*robotv1.TaskDefinition)
		isSent bool
	}{
		"no attribute":            {func(*robotv1.TaskDefinition) {}, false},
		"a variable of its shell": {func(d *robotv1.TaskDefinition) { d.Config.ExecConfig.Args = []string{"${HOME}"} }, false},
		"an arg":                  {func(d *robotv1.TaskDefinition) { d.Config.ExecConfig.Args = []string{"--site=${robot.labels.site}"} }, true},
		"a command":               {func(d *robotv1.TaskDefinition) { d.Config.ExecConfig.Command = "tool-${robot.attr.arch}" }, true},
		"an arg of a container": {func(d *robotv1.TaskDefinition) {
			d.Config = robotv1.TaskConfig{DockerConfig: &robotv1.DockerConfig{Args: []string{"${robot.labels.site}"}}}
		}, true},
		"an option of Java": {func(d *robotv1.TaskDefinition) {
			d.Config = robotv1.TaskConfig{JavaConfig: &robotv1.JavaConfig{JVMOptions: []string{"-Dsite=${robot.labels.site}"}}}
		}, true},
		"a variable": {func(d *robotv1.TaskDefinition) { d.Env = map[string]string{"SITE": "${robot.labels.site}"} }, true},
		"a template": {func(d *robotv1.TaskDefinition) { d.Templates = make([]robotv1.Template, 1) }, true},
	}
	for name, row := range rows {
		task := newBoundTask("t", "r1")
		row.change(&task.Spec.TaskDefinition)
		got := attributesFor(task, r)
		if (got != nil) != row.isSent {
			t.Errorf("a task that uses %s is sent %+v", name, got)
		}
		if got != nil && (got.Labels["a"] != "1" || got.Labels["b"] != "2" || got.Attrs["name"] != "r1") {
			t.Errorf("a task that uses %s is sent %+v, want the labels of spec and metadata, spec first, and the attributes", name, got)
		}
	}
}
