package naming

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
)

func TestChildName_UniqueAndValid(t *testing.T) {
	long := strings.Repeat("x", 100)
	for _, c := range []struct {
		name, got, want string
	}{
		{"a short name joins its parts", ChildName(63, "job", "group"), "job-group"},
		{"a name that just fits is not cut", ChildName(63, strings.Repeat("x", 61), "g"), strings.Repeat("x", 61) + "-g"},
		{"a label that fits is the name", LabelValue("job"), "job"},
	} {
		if c.got != c.want {
			t.Errorf("%s: %s", c.name, c.got)
		}
	}
	names := []string{
		ChildName(63, long, "a"), ChildName(63, long, "b"), ChildName(63, long+"-a", "b"), ChildName(63, long, "a-b"),
		UniqueChildName(63, "u1", "j", "g"), UniqueChildName(63, "u2", "j", "g"), UniqueChildName(63, "u1", "j-g"), UniqueChildName(63, "u1", long, "g"),
	}
	seen := map[string]bool{}
	for _, n := range names {
		if seen[n] {
			t.Errorf("%s is not unique", n)
		}
		seen[n] = true
		if problems := validation.IsDNS1123Label(n); len(problems) > 0 {
			t.Errorf("%s: %v", n, problems)
		}
	}
	if UniqueChildName(63, "u1", "j", "g") != names[4] {
		t.Error("the name is not deterministic")
	}
}
