package watch

import (
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// A source is behind until the last missing change is received, and no longer.
func TestLag_EndsWithLastMissingChange(t *testing.T) {
	for name, row := range map[string]struct{ held, now, heard string }{
		"nothing has changed":             {"a=1 b=2", "a=1 b=2", ""},
		"nothing was there":               {"", "", ""},
		"one was written twice":           {"a=1 b=2", "a=5 b=2", "a=4 a=5"},
		"one was written again since":     {"a=1", "a=5", "b=2 a=6"},
		"one is new":                      {"", "a=5", "b=3 a=5"},
		"one is new, and gone since":      {"", "a=5", "a-6"},
		"one has gone":                    {"a=1 b=2", "b=2", "a=3 a-4"},
		"one has gone and is there again": {"a=1", "a=5", "a-4 a=5"},
		"several":                         {"a=1 b=2 c=3", "a=1 b=5 d=6", "b=4 b=5 d=6 c=4 c-7"},
	} {
		l := newLag()
		var held []*Item
		for i := range list(row.held).Items {
			held = append(held, &Item{Object: &list(row.held).Items[i]})
		}
		if err := l.compareList(held, list(row.now)); err != nil {
			t.Fatal(err)
		}
		for _, word := range strings.Fields(row.heard) {
			if isClosed(l.over) {
				t.Errorf("%s: it is said to know all before %s", name, word)
			}
			at := strings.IndexAny(word, "=-")
			version, _ := strconv.ParseUint(word[at+1:], 10, 64)
			hear := l.recordWrite
			if word[at] == '-' {
				hear = l.recordRemoval
			}
			hear(types.NamespacedName{Name: word[:at]}, version)
		}
		if !isClosed(l.over) {
			t.Errorf("%s: it is said to be behind still", name)
		}
	}
	l := newLag()
	if err := l.compareList(nil, nil); err != nil || !isClosed(l.over) {
		t.Errorf("who began with how things are is behind: %v", err)
	}
}

// list returns tasks, each written as name=version.
func list(words string) *v1alpha1.TaskList {
	out := &v1alpha1.TaskList{}
	for _, word := range strings.Fields(words) {
		t := v1alpha1.Task{}
		t.Name, t.ResourceVersion, _ = strings.Cut(word, "=")
		out.Items = append(out.Items, t)
	}
	return out
}
