package revision

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
)

func template(changes ...func(*v1alpha1.TaskGroupTemplate)) *v1alpha1.TaskGroupTemplate {
	g := &v1alpha1.TaskGroupTemplate{Tasks: []v1alpha1.TaskDefinition{
		{Name: "a", Driver: "exec", Env: map[string]string{"X": "1", "Y": "2"}}, {Name: "b", Driver: "exec"},
	}}
	for _, f := range changes {
		f(g)
	}
	return g
}

func TestTaskRevisions_ChangeWithTheDefinition(t *testing.T) {
	was := TaskRevisions(template())
	four := int32(4)
	for _, c := range []struct {
		name   string
		change func(*v1alpha1.TaskGroupTemplate)
		a, b   bool // whether their revision changes
	}{
		{"nothing", func(*v1alpha1.TaskGroupTemplate) {}, false, false},
		{"one task's own definition", func(g *v1alpha1.TaskGroupTemplate) { g.Tasks[0].Env["X"] = "2" }, true, false},
		{"the constraints", func(g *v1alpha1.TaskGroupTemplate) { g.Constraints = []v1alpha1.Constraint{{Operand: "="}} }, true, true},
		{"the restartPolicy", func(g *v1alpha1.TaskGroupTemplate) { g.RestartPolicy = &v1alpha1.RestartPolicy{Attempts: 1} }, true, true},
		{"the disk", func(g *v1alpha1.TaskGroupTemplate) { g.EphemeralDisk = &v1alpha1.EphemeralDisk{SizeMB: 1} }, true, true},
		{"the count", func(g *v1alpha1.TaskGroupTemplate) { g.Count = &four }, false, false},
		{"the placement", func(g *v1alpha1.TaskGroupTemplate) { g.Placement = &v1alpha1.Placement{Strategy: "pack"} }, false, false},
		{"the order of the tasks", func(g *v1alpha1.TaskGroupTemplate) { g.Tasks[0], g.Tasks[1] = g.Tasks[1], g.Tasks[0] }, false, false},
	} {
		is := TaskRevisions(template(c.change))
		if (is["a"] != was["a"]) != c.a || (is["b"] != was["b"]) != c.b {
			t.Errorf("%s: %v became %v", c.name, was, is)
		}
		for _, r := range is {
			if bad := validation.IsValidLabelValue(r); len(bad) > 0 || r == "" {
				t.Errorf("%s: %q is not a label value: %v", c.name, r, bad)
			}
		}
	}
}

func TestTaskRevisions_InitTaskChangesLaterTasks(t *testing.T) {
	staged := func(g *v1alpha1.TaskGroupTemplate) {
		g.InitTasks = []v1alpha1.TaskDefinition{{Name: "first"}, {Name: "second"}}
	}
	memory := resource.MustParse("1Gi")
	was := TaskRevisions(template(staged))
	for name, c := range map[string]struct {
		change func(*v1alpha1.TaskGroupTemplate)
		want   string
	}{
		"the first init task":            {func(g *v1alpha1.TaskGroupTemplate) { g.InitTasks[0].User = "u" }, "a b first second"},
		"the second":                     {func(g *v1alpha1.TaskGroupTemplate) { g.InitTasks[1].User = "u" }, "a b second"},
		"a task":                         {func(g *v1alpha1.TaskGroupTemplate) { g.Tasks[0].User = "u" }, "a"},
		"what the init task holds alone": {func(g *v1alpha1.TaskGroupTemplate) { g.InitTasks[1].Resources = &v1alpha1.Resources{Memory: &memory} }, "a b second"},
	} {
		is := TaskRevisions(template(staged, c.change))
		var changed []string
		for _, task := range slices.Sorted(maps.Keys(is)) {
			if is[task] != was[task] {
				changed = append(changed, task)
			}
		}
		if got := strings.Join(changed, " "); got != c.want {
			t.Errorf("%s: changed revisions %q, want %q", name, got, c.want)
		}
	}
}

func TestTaskRevision_ComputedWithoutLabel(t *testing.T) {
	g := template()
	task := &v1alpha1.Task{Spec: v1alpha1.TaskSpec{TaskDefinition: g.Tasks[0], JobName: "j", TargetRobot: "r1", EvictAttempt: 2}}
	if TaskRevision(task) != TaskRevisions(g)["a"] {
		t.Error("the computed revision differs")
	}
	task.Labels = map[string]string{v1alpha1.LabelRevision: "x"}
	if TaskRevision(task) != "x" {
		t.Error("the label is ignored")
	}
}
