package v1alpha1

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestTaskGroup_HasUnobservedChange(t *testing.T) {
	for _, c := range []struct {
		name                 string
		generation, observed int64
		want                 bool
	}{
		{"a new group", 1, 0, false},
		{"a new group that was changed before its first status", 2, 0, true},
		{"a group with a status", 1, 1, false},
		{"a changed group", 3, 2, true},
		{"a change that was observed", 3, 3, false},
	} {
		g := &TaskGroup{ObjectMeta: metav1.ObjectMeta{Generation: c.generation}, Status: TaskGroupStatus{ObservedGeneration: c.observed}}
		if g.HasUnobservedChange() != c.want {
			t.Errorf("%s: %v, want %v", c.name, !c.want, c.want)
		}
	}
}
