package planapi

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// jobWith returns the content of a valid Job with one more value at a path. Numbers in the path are indexes.
func jobWith(t *testing.T, value any, path ...string) *request {
	t.Helper()
	task := map[string]any{"name": "t", "driver": "exec", "config": map[string]any{}}
	group := map[string]any{"name": "g", "tasks": []any{task}}
	spec := map[string]any{"type": "service", "taskGroups": []any{group}}
	at := map[string]map[string]any{"spec": spec, "group": group, "task": task}[path[0]]
	if err := unstructured.SetNestedField(at, value, path[1:]...); err != nil {
		t.Fatal(err)
	}
	return &request{content: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "Job", "metadata": map[string]any{"namespace": "ns", "name": "j"}, "spec": spec,
	}}
}

func manyFields(n int) map[string]any {
	out := map[string]any{}
	for i := range n {
		out[fmt.Sprint("k", i)] = "v"
	}
	return out
}

func TestDecodeJob_HasTheBoundsOfTheSchema(t *testing.T) {
	rule := map[string]any{"lTarget": "a", "operand": "=", "rTarget": "x"}
	long := map[string]any{"lTarget": "a", "operand": "=", "rTarget": strings.Repeat("x", 5000)}
	deep := any("x")
	for range 5000 {
		deep = []any{deep}
	}
	for _, c := range []struct {
		name, want string
		request    *request
	}{
		{"a valid job", "", jobWith(t, int64(3), "group", "count")},
		{"a number that is too large", "spec.taskGroups[0].count: must be at most 1000000", jobWith(t, int64(1_000_001), "group", "count")},
		{"a negative number", "spec.taskGroups[0].count: must be at least 1", jobWith(t, int64(-1), "group", "count")},
		{"a fraction above the maximum", "spec.taskGroups[0].count: must be at most", jobWith(t, 1e9, "group", "count")},
		{"no groups", "spec.taskGroups: must be set", jobWith(t, nil, "spec", "taskGroups")},
		{"an empty list of groups", "spec.taskGroups: must have at least 1 items", jobWith(t, []any{}, "spec", "taskGroups")},
		{"many groups", "spec.taskGroups: must have at most 64 items, not 65", jobWith(t, slices.Repeat([]any{map[string]any{}}, 65), "spec", "taskGroups")},
		{"many tasks", "spec.taskGroups[0].tasks: must have at most", jobWith(t, slices.Repeat([]any{map[string]any{}}, 1000), "group", "tasks")},
		{"many constraints", "spec.taskGroups[0].constraints: must have at most", jobWith(t, slices.Repeat([]any{rule}, 1000), "group", "constraints")},
		{"a long target of a constraint", "spec.taskGroups[0].constraints[0].rTarget: must have at most", jobWith(t, []any{long}, "group", "constraints")},
		{"a large map", "spec.meta: must have at most", jobWith(t, manyFields(1000), "spec", "meta")},
		{"another type", "the Job is not valid", jobWith(t, "x", "group", "count")},
		{"an unknown field", "", jobWith(t, deep, "spec", "other")},
		{"a field in other letters", "", jobWith(t, manyFields(1000), "spec", "Meta")},
	} {
		t.Run(c.name, func(t *testing.T) {
			j, err := c.request.decodeJob()
			if (err == nil) != (c.want == "") || err != nil && !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("%.500v, want %q", err, c.want)
			}
			if err == nil && (len(j.Spec.TaskGroups) != 1 || len(j.Spec.Meta) > 0) {
				t.Errorf("decoded %+v", j.Spec)
			}
		})
	}
}
