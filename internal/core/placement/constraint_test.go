package placement

import (
	"strings"
	"testing"
)

func TestConstraints(t *testing.T) {
	r := robot("arm-7", func(r *Robot) {
		r.Labels = map[string]string{"env": "prod", "firmware": "1.10.0", "tools": "gripper, drill", "pattern": "(", "range": "new"}
		r.Attrs = map[string]string{"os": "linux", "kernel": "6.1.0-18-arm64", "cpu.cores": "8", "memory.total": "8589934592", "driver.exec": "true"}
	})
	const no = " is not met"
	for _, c := range []struct {
		name string
		in   Constraint
		want string // the verdict behind the constraint itself; empty: it holds
	}{
		{"= of equal text", Constraint{"${robot.labels.env}", "=", "prod"}, ""},
		{"= of other text", Constraint{"${robot.labels.env}", "=", "test"}, no},
		{"= of numbers that are written differently", Constraint{"${robot.attr.memory.total}", "=", "8Gi"}, ""},
		{"= of two literals", Constraint{"a", "=", "a"}, ""},
		{"= with the robot on the right", Constraint{"linux", "=", "${robot.attr.os}"}, ""},
		{"= of a label that is missing", Constraint{"${robot.labels.zone}", "=", ""}, no + ": label zone missing"},
		{"= of an attribute that is missing", Constraint{"${robot.attr.hostname}", "=", "h"}, no + ": attribute hostname missing"},
		{"= of a driver", Constraint{"${robot.attr.driver.exec}", "=", "true"}, ""},
		{"!= of other text", Constraint{"${robot.labels.env}", "!=", "test"}, ""},
		{"!= of equal text", Constraint{"${robot.labels.env}", "!=", "prod"}, no},
		{"!= of equal numbers", Constraint{"${robot.attr.cpu.cores}", "!=", "8.0"}, no},
		{"!= of a label that is missing", Constraint{"${robot.labels.zone}", "!=", "a"}, ""},
		{"!= of a right label that is missing", Constraint{"a", "!=", "${robot.labels.zone}"}, ""},
		{"> of numbers, not of their text", Constraint{"${robot.attr.cpu.cores}", ">", "10"}, no},
		{"> of a smaller number", Constraint{"${robot.attr.cpu.cores}", ">", "4"}, ""},
		{"> of the same number", Constraint{"${robot.attr.cpu.cores}", ">", "8"}, no},
		{"> of a quantity", Constraint{"${robot.attr.memory.total}", ">", "7.5Gi"}, ""},
		{"> of versions, not of their text", Constraint{"${robot.labels.firmware}", ">", "1.9.0"}, ""},
		{"> of text", Constraint{"b", ">", "a"}, ""},
		{"> of a label that is missing", Constraint{"${robot.labels.zone}", ">", ""}, no + ": label zone missing"},
		{">= of the same number", Constraint{"${robot.attr.cpu.cores}", ">=", "8"}, ""},
		{">= of a larger number", Constraint{"${robot.attr.cpu.cores}", ">=", "9"}, no},
		{">= of a label that is missing", Constraint{"${robot.labels.zone}", ">=", ""}, no + ": label zone missing"},
		{"< of a larger number", Constraint{"${robot.attr.cpu.cores}", "<", "16"}, ""},
		{"< of the same number", Constraint{"${robot.attr.cpu.cores}", "<", "8"}, no},
		{"< of half a core", Constraint{"500m", "<", "${robot.attr.cpu.cores}"}, ""},
		{"< of a label that is missing", Constraint{"${robot.labels.zone}", "<", "z"}, no + ": label zone missing"},
		{"<= of the same number", Constraint{"${robot.attr.cpu.cores}", "<=", "8"}, ""},
		{"<= of a smaller number", Constraint{"${robot.attr.cpu.cores}", "<=", "7"}, no},
		{"<= of a label that is missing", Constraint{"${robot.labels.zone}", "<=", "z"}, no + ": label zone missing"},
		{"regexp that matches a part", Constraint{"${robot.attr.kernel}", "regexp", "arm(64|hf)"}, ""},
		{"regexp that does not match", Constraint{"${robot.attr.kernel}", "regexp", "^5"}, no},
		{"regexp of a label that is missing", Constraint{"${robot.labels.zone}", "regexp", ".*"}, no + ": label zone missing"},
		{"regexp that does not compile", Constraint{"${robot.labels.env}", "regexp", "("}, " is invalid: error parsing regexp"},
		{"regexp of a label that does not compile", Constraint{"a", "regexp", "${robot.labels.pattern}"}, " is invalid: error parsing regexp"},
		{"set_contains of one item", Constraint{"${robot.labels.tools}", "set_contains", "drill"}, ""},
		{"set_contains of all items, in any order", Constraint{"${robot.labels.tools}", "set_contains", "drill,gripper"}, ""},
		{"set_contains of an item too many", Constraint{"${robot.labels.tools}", "set_contains", "drill,saw"}, no},
		{"set_contains of a part of an item", Constraint{"${robot.labels.tools}", "set_contains", "dril"}, no},
		{"set_contains of a label that is missing", Constraint{"${robot.labels.zone}", "set_contains", ""}, no + ": label zone missing"},
		{"version within bounds", Constraint{"${robot.labels.firmware}", "version", ">= 1.9, < 2"}, ""},
		{"version out of one bound", Constraint{"${robot.labels.firmware}", "version", ">= 1.9, < 1.10"}, no},
		{"version of a kernel", Constraint{"${robot.attr.kernel}", "version", ">= 6.1"}, ""},
		{"version of what is none", Constraint{"${robot.labels.env}", "version", ">= 0"}, no},
		{"version of a label that is missing", Constraint{"${robot.labels.zone}", "version", ">= 0"}, no + ": label zone missing"},
		{"version with malformed bounds", Constraint{"1.0", "version", ">= new"}, ` is invalid: "new" is not a version`},
		{"version with malformed bounds in a label", Constraint{"1.0", "version", "${robot.labels.range}"}, ` is invalid: "new" is not a version`},
		{"an operand that does not exist", Constraint{"a", "~", "a"}, ` is invalid: unknown operand "~"`},
		{"an attribute that does not exist", Constraint{"${robot.attr.mood}", "=", "good"}, " is invalid: ${robot.attr.mood} is not a literal"},
		{"a reference to something else", Constraint{"${node.id}", "=", "a"}, " is invalid: ${node.id} is not a literal"},
		{"a reference without an end", Constraint{"a", "=", "${robot.labels.env"}, " is invalid: ${robot.labels.env is not a literal"},
		{"a reference within text", Constraint{"x-${robot.labels.env}", "=", "x-prod"}, " is invalid"},
		{"a label without a name", Constraint{"${robot.labels.}", "=", "a"}, " is invalid"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := constraintCheck(c.in)(&r)
			switch begins := "constraint " + c.in.String() + c.want; {
			case c.want == "" && !got.IsZero():
				t.Errorf("rejected: %s", got)
			case c.want == no && got.String() != begins, !strings.HasPrefix(got.String(), begins) && c.want != "":
				t.Errorf("rejection %q, want %q", got, begins)
			}
		})
	}
}

func TestVersions(t *testing.T) {
	for _, c := range []struct {
		name, version, in string
		want              bool
	}{
		{"a version alone is itself", "1.2", "1.2.0", true},
		{"a leading v does not count", "v1.2.3", "= 1.2.3", true},
		{"numbers count, not digits", "1.10", "> 1.9", true},
		{"what was added counts", "1.2.1", "> 1.2", true},
		{"a pre-release comes before its release", "2.0.0-rc.1", ">= 2", false},
		{"and after the one before", "2.0.0-rc.1", "> 1.99", true},
		{"pre-releases count up", "2.0.0-rc.10", "> 2.0.0-rc.9", true},
		{"beta comes before rc", "2.0.0-beta", "< 2.0.0-rc", true},
		{"a build does not count", "1.2.3+abc", "= 1.2.3", true},
		{"a kernel's own number counts", "6.1.0-18-amd64", "> 6.1.0-9", true},
		{"a kernel is no pre-release", "6.1.0-generic", ">= 6.1", true},
		{"unequal", "1.2", "!= 1.3", true},
		{"at most", "1.3", "<= 1.3", true},
		{"~> holds below the next", "1.2.9", "~> 1.2.3", true},
		{"~> does not hold for the next", "1.3.0", "~> 1.2.3", false},
		{"~> of two numbers holds below the next first one", "1.9", "~> 1.2", true},
		{"~> does not hold below", "1.1", "~> 1.2", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got, err := inVersionRange(c.version, c.in); err != nil || got != c.want {
				t.Errorf("%s in %s: %v, %v", c.version, c.in, got, err)
			}
		})
	}
}

// Labels are anybody's. No text may take long or panic.
func TestParseNumber_RejectsOtherText(t *testing.T) {
	for _, s := range []string{"", "-", ".", "e9", "1e999999999", "1/0", "0x10", "1_0", "1.2.3", "12 ", "NaN", "Inf", "5KiB", strings.Repeat("9", 40)} {
		if n := parseNumber(s); n != nil {
			t.Errorf("%q is %s", s, n)
		}
	}
	for s, want := range map[string]string{"1": "1", "-1.5": "-3/2", "500m": "1/2", "1k": "1000", "2Ki": "2048", "1E": "1000000000000000000"} {
		if n := parseNumber(s); n == nil || n.RatString() != want {
			t.Errorf("%q is %v, want %s", s, n, want)
		}
	}
}

func FuzzConstraint(f *testing.F) {
	f.Add("${robot.labels.a}", "version", ">= 1.2, < 2", "1.2.3-rc.1")
	f.Add("${robot.attr.os}", "regexp", "(", "x")
	f.Add("1e9Ki", "<", "${robot.labels.a}", "v1")
	f.Fuzz(func(_ *testing.T, left, operand, right, label string) {
		r := robot("r", func(r *Robot) { r.Labels = map[string]string{"a": label} })
		constraintCheck(Constraint{left, operand, right})(&r)
	})
}
