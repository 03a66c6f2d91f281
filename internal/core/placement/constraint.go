package placement

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Constraint compares two targets. A target is a literal, or the value of a
// robot's label ${robot.labels.NAME} or attribute ${robot.attr.NAME}.
type Constraint struct {
	Left, Operand, Right string
}

func (c Constraint) String() string { return c.Left + " " + c.Operand + " " + c.Right }

// Attributes are the names that ${robot.attr.NAME} knows beside driver.X and
// isolation.X, which are "true" where the robot offers driver X, and where it has
// the isolation X in force. What a robot does not say of itself it does not have.
var Attributes = []string{
	"name", "hostname", "os", "arch", "kernel",
	"platform", "platform.family", "platform.version",
	"cpu.cores", "cpu.model", "cpu.vendor",
	"memory.total", "disk.total", "drivers",
	"agent.version", "agent.protocol",
}

// target is one side of a constraint, read.
type target struct {
	literal     string
	label, attr string // one of them names where the value is
}

func (t target) isLiteral() bool { return t.label == "" && t.attr == "" }

// readTarget understands one side. Whatever looks like a reference and is none
// would be compared as text and never hold, so it is an error.
func readTarget(s string) (target, error) {
	if !strings.Contains(s, "${") {
		return target{literal: s}, nil
	}
	inner, opened := strings.CutPrefix(s, "${robot.")
	inner, closed := strings.CutSuffix(inner, "}")
	if opened && closed && !strings.ContainsAny(inner, "${}") {
		if name, ok := strings.CutPrefix(inner, "labels."); ok && name != "" {
			return target{label: name}, nil
		}
		if name, ok := strings.CutPrefix(inner, "attr."); ok && known(name) {
			return target{attr: name}, nil
		}
	}
	return target{}, fmt.Errorf("%s is not a literal, ${robot.labels.NAME} or ${robot.attr.NAME} with a name that is known", s)
}

// The beginnings of the names of attributes of which there may be any.
const (
	attrDriver    = "driver."
	attrIsolation = "isolation."
)

func known(attr string) bool {
	for _, prefix := range []string{attrDriver, attrIsolation} {
		if name, ok := strings.CutPrefix(attr, prefix); ok && name != "" {
			return true
		}
	}
	return slices.Contains(Attributes, attr)
}

// of is the target's value on a robot, and in words what is missing.
func (t target) of(r *Robot) (value, missing string) {
	var ok bool
	switch {
	case t.label != "":
		if value, ok = r.Labels[t.label]; !ok {
			missing = "label " + t.label + " missing"
		}
	case t.attr != "":
		if value, ok = r.Attrs[t.attr]; !ok {
			missing = "attribute " + t.attr + " missing"
		}
	default:
		value = t.literal
	}
	return value, missing
}

// comparison tells whether the operand holds between two values. Its error is
// about the right one: an expression that nobody can read.
type comparison func(left, right string) (bool, error)

// operands by their names.
var operands = map[string]comparison{
	"=":            func(l, r string) (bool, error) { return same(l, r), nil },
	"!=":           func(l, r string) (bool, error) { return !same(l, r), nil },
	">":            func(l, r string) (bool, error) { return order(l, r) > 0, nil },
	">=":           func(l, r string) (bool, error) { return order(l, r) >= 0, nil },
	"<":            func(l, r string) (bool, error) { return order(l, r) < 0, nil },
	"<=":           func(l, r string) (bool, error) { return order(l, r) <= 0, nil },
	"set_contains": func(l, r string) (bool, error) { return containsAll(l, r), nil },
	"regexp":       matches,
	"version":      inRange,
}

// condition is a Constraint that was read.
type condition struct {
	Constraint
	left, right target
	holds       comparison
	// seen are the verdicts over values that were compared before. A fleet has
	// few of them, and numbers and versions take long to read.
	seen map[[2]string]Verdict
}

// maxSeen bounds what a condition on host names remembers.
const maxSeen = 256

// read understands a constraint. What stands there literally is understood
// once, not once a robot.
func (c Constraint) read() (condition, error) {
	out := condition{Constraint: c, seen: map[[2]string]Verdict{}}
	var err error
	if out.left, err = readTarget(c.Left); err != nil {
		return out, err
	}
	if out.right, err = readTarget(c.Right); err != nil {
		return out, err
	}
	var ok bool
	if out.holds, ok = operands[c.Operand]; !ok {
		return out, fmt.Errorf("there is no operand %q", c.Operand)
	}
	if !out.right.isLiteral() {
		return out, nil
	}
	switch c.Operand {
	case "regexp":
		var re *regexp.Regexp
		if re, err = regexp.Compile(c.Right); err != nil {
			return out, err
		}
		out.holds = func(l, _ string) (bool, error) { return re.MatchString(l), nil }
	case "version":
		var in versionRange
		if in, err = readRange(c.Right); err != nil {
			return out, err
		}
		out.holds = func(l, _ string) (bool, error) { return in.contains(l), nil }
	}
	return out, nil
}

// judge is the verdict over one robot. A value that is missing is unlike every
// other, and that is all that can be said of it.
func (c *condition) judge(r *Robot) Verdict {
	left, missing := c.left.of(r)
	right, also := c.right.of(r)
	if missing == "" {
		missing = also
	}
	if missing != "" {
		if c.Operand == "!=" {
			return Verdict{}
		}
		return Verdict{"ConstraintNotMet", fmt.Sprintf("constraint %s is not met: %s", c, missing)}
	}
	values := [2]string{left, right}
	v, ok := c.seen[values]
	if !ok {
		v = c.compare(left, right)
		if len(c.seen) == maxSeen {
			clear(c.seen)
		}
		c.seen[values] = v
	}
	return v
}

func (c *condition) compare(left, right string) Verdict {
	ok, err := c.holds(left, right)
	switch {
	case err != nil:
		return unreadable(c.Constraint, err)
	case ok:
		return Verdict{}
	}
	return Verdict{"ConstraintNotMet", fmt.Sprintf("constraint %s is not met", c)}
}

func unreadable(c Constraint, err error) Verdict {
	return Verdict{"BadConstraint", fmt.Sprintf("constraint %s cannot be read: %v", c, err)}
}

func matches(text, pattern string) (bool, error) {
	re, err := regexp.Compile(pattern)
	if err != nil {
		return false, err
	}
	return re.MatchString(text), nil
}

func inRange(version, in string) (bool, error) {
	r, err := readRange(in)
	if err != nil {
		return false, err
	}
	return r.contains(version), nil
}

// containsAll reads both sides as lists with commas: every item of the right
// one stands in the left one.
func containsAll(left, right string) bool {
	has := items(left)
	for _, want := range items(right) {
		if !slices.Contains(has, want) {
			return false
		}
	}
	return true
}

func items(list string) []string {
	out := strings.Split(list, ",")
	for i := range out {
		out[i] = strings.TrimSpace(out[i])
	}
	return out
}
