package apiconv

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/placement"
)

// tasks reads "name:memory", with a + behind the name of a daemon.
func tasks(all string) (out []v1alpha1.TaskDefinition) {
	for one := range strings.FieldsSeq(all) {
		name, memory, _ := strings.Cut(one, ":")
		q := resource.MustParse(memory)
		out = append(out, v1alpha1.TaskDefinition{
			Name: strings.TrimSuffix(name, "+"), Daemon: strings.HasSuffix(name, "+"),
			Resources: &v1alpha1.Resources{Memory: &q},
		})
	}
	return out
}

// What a replica holds is never less than what runs, at any step, and at first no
// more than the largest step needs.
func TestExtraResources(t *testing.T) {
	for _, c := range []struct {
		name, init, tasks string
		want              []int64 // what is held before each init task ends, and after the last
	}{
		{"what is smaller holds nothing", "a:1 b:2", "x:3", []int64{3, 3, 3}},
		{"what is larger holds the rest", "a:5", "x:3", []int64{5, 3}},
		{"the tasks count together", "a:5", "x:3 y:2", []int64{5, 5}},
		{"the largest is first", "a:9 b:5", "x:3", []int64{9, 5, 3}},
		{"the largest is last", "a:5 b:9", "x:3", []int64{9, 9, 3}},
		{"daemons count with the tasks, and with the init tasks after them", "a:5 d+:2 b:5", "x:1 e+:1", []int64{7, 7, 4}},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := &v1alpha1.TaskGroupTemplate{InitTasks: tasks(c.init), Tasks: tasks(c.tasks)}
			holds := ExtraResources(g)
			var held placement.Room
			for _, def := range g.TaskDefinitions() {
				task := TaskFrom("default", "", def, holds[def.Name], nil)
				held = held.Plus(task.Room())
			}
			if want := int64(len(g.Tasks) + len(g.InitTasks) - len(holds)); held.Tasks != want {
				t.Errorf("takes %d places, want %d", held.Tasks, want)
			}
			got := []int64{held.Memory}
			for i := range g.InitTasks {
				if def := &g.InitTasks[i]; !def.Daemon {
					task := TaskFrom("default", "", def, holds[def.Name], nil)
					held = held.Minus(task.Room())
					got = append(got, held.Memory)
				}
			}
			for i := range c.want {
				if len(got) != len(c.want) || got[i] != c.want[i] {
					t.Fatalf("holds %v, want %v", got, c.want)
				}
			}
		})
	}
}

func TestExtraResources_DevicesOfInitTasks(t *testing.T) {
	count := func(n string) *v1alpha1.Resources {
		return &v1alpha1.Resources{Devices: map[string]resource.Quantity{"arm": resource.MustParse(n)}}
	}
	g := &v1alpha1.TaskGroupTemplate{
		InitTasks: []v1alpha1.TaskDefinition{{Name: "init", Resources: count("3")}},
		Tasks:     []v1alpha1.TaskDefinition{{Name: "t", Resources: count("1")}},
	}
	if got := ExtraResources(g)["init"].Devices["arm"]; got.Value() != 2 {
		t.Errorf("holds %s arms", got.String())
	}
	g.Tasks[0].Resources = count("3")
	if got := ExtraResources(g)["init"]; got == nil || len(got.Devices) != 0 {
		t.Errorf("holds %+v", got)
	}
}
