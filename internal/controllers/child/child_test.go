package child

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
)

func TestNames(t *testing.T) {
	long := strings.Repeat("x", 100)
	for _, c := range []struct {
		name, got, want string
	}{
		{"a short name is its parts", Name(63, "job", "group"), "job-group"},
		{"a name that just fits is not shortened", Name(63, strings.Repeat("x", 61), "g"), strings.Repeat("x", 61) + "-g"},
		{"a label that fits is the name", Label("job"), "job"},
	} {
		if c.got != c.want {
			t.Errorf("%s: %s", c.name, c.got)
		}
	}
	names := []string{
		Name(63, long, "a"), Name(63, long, "b"), Name(63, long+"-a", "b"), Name(63, long, "a-b"),
		Other(63, "u1", "j", "g"), Other(63, "u2", "j", "g"), Other(63, "u1", "j-g"), Other(63, "u1", long, "g"),
	}
	seen := map[string]bool{}
	for _, n := range names {
		if seen[n] {
			t.Errorf("%s is there twice", n)
		}
		seen[n] = true
		if problems := validation.IsDNS1123Label(n); len(problems) > 0 {
			t.Errorf("%s: %v", n, problems)
		}
	}
	if Other(63, "u1", "j", "g") != names[4] {
		t.Error("a name is not the same twice")
	}
}
