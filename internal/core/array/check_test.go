package array

import (
	"strings"
	"testing"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
)

func TestCheck(t *testing.T) {
	task := v1alpha1.TaskDefinition{Name: "t", Driver: "exec"}
	for _, c := range []struct {
		name, jobType, want string // want is empty: it is accepted
		change              func(*v1alpha1.TaskGroupTemplate)
	}{
		{name: "a size", change: func(*v1alpha1.TaskGroupTemplate) {}},
		{name: "the default count", change: func(g *v1alpha1.TaskGroupTemplate) { g.Count = new(int32(1)) }},
		{name: "the largest array", change: func(g *v1alpha1.TaskGroupTemplate) { g.Array.Size = v1alpha1.MaxArraySize }},
		{name: "items alone", change: func(g *v1alpha1.TaskGroupTemplate) { g.Array = &v1alpha1.Array{Items: []string{"a", "b"}} }},
		{name: "items of indexes", change: func(g *v1alpha1.TaskGroupTemplate) {
			g.Array = &v1alpha1.Array{Indexes: "5,7-8", Items: []string{"a", "b", "c"}}
		}},
		{name: "no array", jobType: "service", change: func(g *v1alpha1.TaskGroupTemplate) { g.Array, g.Gang = nil, true }},
		{name: "a service", jobType: "service", want: "array: each index must end, and a job of type service restarts", change: func(*v1alpha1.TaskGroupTemplate) {}},
		{name: "a system job", jobType: "system", want: "use type: batch, or count instead of array", change: func(*v1alpha1.TaskGroupTemplate) {}},
		{name: "a sysbatch job", jobType: "sysbatch", want: "array: a job of type sysbatch runs its tasks once on every robot; use type: batch, or omit array", change: func(*v1alpha1.TaskGroupTemplate) {}},
		{name: "a count", want: "count: the array defines the number of tasks; omit count", change: func(g *v1alpha1.TaskGroupTemplate) { g.Count = new(int32(2)) }},
		{name: "two tasks", want: "tasks: an array runs one task, and there are 2", change: func(g *v1alpha1.TaskGroupTemplate) { g.Tasks = append(g.Tasks, task) }},
		{name: "init tasks", want: "initTasks: an array has none", change: func(g *v1alpha1.TaskGroupTemplate) { g.InitTasks = append(g.InitTasks, task) }},
		{name: "a gang", want: "gang: the indexes of an array do not start together", change: func(g *v1alpha1.TaskGroupTemplate) { g.Gang = true }},
		{name: "a restart after a reboot", want: "restartPolicy.onReboot: the robot starts no index again", change: func(g *v1alpha1.TaskGroupTemplate) {
			g.RestartPolicy = &v1alpha1.RestartPolicy{OnReboot: v1alpha1.OnRebootRestart}
		}},
		{name: "a shared directory", want: "ephemeralDisk: the indexes of an array share no directory", change: func(g *v1alpha1.TaskGroupTemplate) { g.EphemeralDisk = &v1alpha1.EphemeralDisk{} }},
		{name: "a daemon", want: "tasks[t].daemon: the indexes of an array must end", change: func(g *v1alpha1.TaskGroupTemplate) { g.Tasks[0].Daemon = true }},
		{name: "a secret", want: "tasks[t].secretEnv: an array has none", change: func(g *v1alpha1.TaskGroupTemplate) {
			g.Tasks[0].SecretEnv = map[string]v1alpha1.SecretKey{"A": {}}
		}},
		{name: "nothing", want: "array: it has no index; set size, indexes or items", change: func(g *v1alpha1.TaskGroupTemplate) { g.Array.Size = 0 }},
		{name: "size and indexes", want: "array.size: indexes defines the indexes, too", change: func(g *v1alpha1.TaskGroupTemplate) { g.Array.Indexes = "0" }},
		{name: "too large", want: "it has 100001 indexes, and at most 100000 are allowed", change: func(g *v1alpha1.TaskGroupTemplate) { g.Array.Size = v1alpha1.MaxArraySize + 1 }},
		{name: "too many in a text", want: "it has 200000 indexes", change: func(g *v1alpha1.TaskGroupTemplate) { g.Array = &v1alpha1.Array{Indexes: "0-199999"} }},
		{name: "descending", want: `array.indexes: "3": the indexes must ascend`, change: func(g *v1alpha1.TaskGroupTemplate) { g.Array = &v1alpha1.Array{Indexes: "5,3"} }},
		{name: "an index twice", want: "none may occur twice", change: func(g *v1alpha1.TaskGroupTemplate) { g.Array = &v1alpha1.Array{Indexes: "5,5"} }},
		{name: "a large index", want: "the largest index is 999999; write indexes in ascending order", change: func(g *v1alpha1.TaskGroupTemplate) { g.Array = &v1alpha1.Array{Indexes: "1000000"} }},
		{name: "words", want: `array.indexes: "all": want a number or a range such as 0-99`, change: func(g *v1alpha1.TaskGroupTemplate) { g.Array = &v1alpha1.Array{Indexes: "all"} }},
		{name: "items of other indexes", want: "array.items: there are 1 items for 10 indexes", change: func(g *v1alpha1.TaskGroupTemplate) { g.Array.Items = []string{"a"} }},
		{name: "large items", want: "array.items: they have 131080 bytes, and at most 131072 are allowed", change: func(g *v1alpha1.TaskGroupTemplate) {
			g.Array = &v1alpha1.Array{Items: []string{strings.Repeat("a", 131080)}}
		}},
		{name: "a large range", want: "array.rangeSize: must be at most 1000", change: func(g *v1alpha1.TaskGroupTemplate) { g.Array.RangeSize = 1001 }},
		{name: "a negative size", want: "array: size and rangeSize must not be negative", change: func(g *v1alpha1.TaskGroupTemplate) { g.Array.Size = -1 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := &v1alpha1.TaskGroupTemplate{Array: &v1alpha1.Array{Size: 10}, Tasks: []v1alpha1.TaskDefinition{task}}
			c.change(g)
			err := Check("spec.", c.jobType, g)
			if c.want != "" && err != nil && !strings.HasPrefix(err.Error(), "spec.") {
				t.Errorf("%v does not begin with the field", err)
			}
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}
