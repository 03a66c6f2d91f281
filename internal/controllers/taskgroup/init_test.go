package taskgroup

import (
	"reflect"
	"testing"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/placement"
	"k8s4r.io/k8s4r/internal/core/revision"
)

// withInit is a group with an init task and two daemons beside its task.
func withInit(w *Input) {
	w.Group.Spec.InitTasks = []v1alpha1.TaskDefinition{{Name: "fetch"}, {Name: "side", Daemon: true}}
	w.Group.Spec.Tasks = []v1alpha1.TaskDefinition{{Name: "run"}, {Name: "log", Daemon: true}}
	w.Revisions = revision.TaskRevisions(&w.Group.Spec.TaskGroupTemplate)
}

// A good end is the end of an init task and of a batch task, and of nothing else.
func TestTaskBuilder_TaskTypes(t *testing.T) {
	const batch, service, system, sysbatch = "", v1alpha1.JobTypeService, v1alpha1.JobTypeSystem, v1alpha1.TaskTypeSysbatch
	for kind, want := range map[string]map[string]string{
		v1alpha1.JobTypeBatch: {"fetch": batch, "side": service, "run": batch, "log": service},
		service:               {"fetch": batch, "side": service, "run": service, "log": service},
		system:                {"fetch": sysbatch, "side": system, "run": system, "log": system},
		sysbatch:              {"fetch": sysbatch, "side": system, "run": sysbatch, "log": system},
	} {
		w := newInput(1, withInit)
		w.Job.Spec.Type = kind
		for _, def := range w.Group.Spec.TaskDefinitions() {
			got := w.newTaskBuilder().buildTask("x", 0, def, placement.Robot{})
			if got.Spec.Type != want[def.Name] || (got.Spec.ExtraResources != nil) != (def.Name == "fetch") {
				t.Errorf("%s of a %s job is of type %q, holds %v", def.Name, kind, got.Spec.Type, got.Spec.ExtraResources)
			}
		}
	}
}

// Without a policy of its own the agent would restart a task of type sysbatch without limit, as it does
// for an init task of a system job.
func TestTaskBuilder_SysbatchRestartPolicy(t *testing.T) {
	own := &v1alpha1.RestartPolicy{Attempts: 3, Mode: v1alpha1.RestartDelay}
	for _, c := range []struct {
		name, jobType, task string
		policy              *v1alpha1.RestartPolicy
		want                *v1alpha1.RestartPolicy
	}{
		{"a task of a sysbatch job is not restarted", v1alpha1.JobTypeSysbatch, "run", nil, &v1alpha1.RestartPolicy{Mode: v1alpha1.RestartFail}},
		{"nor its init task", v1alpha1.JobTypeSysbatch, "fetch", nil, &v1alpha1.RestartPolicy{Mode: v1alpha1.RestartFail}},
		{"its daemon is", v1alpha1.JobTypeSysbatch, "log", nil, nil},
		{"a policy of the group holds", v1alpha1.JobTypeSysbatch, "run", own, own},
		{"an init task of a system job is restarted", v1alpha1.JobTypeSystem, "fetch", nil, nil},
	} {
		w := newInput(1, withInit)
		w.Job.Spec.Type, w.Group.Spec.RestartPolicy = c.jobType, c.policy
		for _, def := range w.Group.Spec.TaskDefinitions() {
			if def.Name != c.task {
				continue
			}
			got := w.newTaskBuilder().buildTask("x", 0, def, placement.Robot{}).Spec.RestartPolicy
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
			}
		}
	}
}

func TestTaskBuilder_Stages(t *testing.T) {
	w := newInput(1, withInit)
	for name, want := range map[string]int32{"fetch": 1, "side": 2, "run": 3, "log": 3} {
		if got := w.Group.Spec.Stage(name); got != want {
			t.Errorf("%s has stage %d, want %d", name, got, want)
		}
	}
	for _, def := range w.Group.Spec.TaskDefinitions() {
		if got := w.newTaskBuilder().buildTask("x", 0, def, placement.Robot{}).Spec.Stage; got != w.Group.Spec.Stage(def.Name) {
			t.Errorf("the task of %s has stage %d", def.Name, got)
		}
	}
	w.Group.Spec.InitTasks = nil
	if got := w.Group.Spec.Stage("run"); got != 0 {
		t.Errorf("without init tasks the stage is %d", got)
	}
}

func TestPlan_CountsInitTasks(t *testing.T) {
	got := Plan(noon, Config{}.WithDefaults(), newInput(3, withInit))
	if len(got.Reserve) != 3 || len(got.Reserve[0].Tasks) != 4 || got.Reserve[0].Tasks[0].Name != "fetch" {
		t.Fatalf("reserves %+v", got.Reserve)
	}
	all := buildDemands(newInput(3, withInit).Group, got.Reserve, nil)
	if n := all[0].Needs().Tasks; n != 3 {
		t.Errorf("the demand needs %d task slots, want those of the main tasks", n)
	}
	some := Plan(noon, Config{}.WithDefaults(), newInput(3, withInit, withTasks(lifecycle.TaskCompleted, 4), inState("running")))
	if s := some.Status; s.TotalTasks != 12 || s.SucceededTasks != 4 || s.PendingTasks != 8 {
		t.Errorf("%+v", s)
	}
}
