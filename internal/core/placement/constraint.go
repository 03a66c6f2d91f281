package placement

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Constraint compares two targets. A target is a literal, or the value of a
// robot's label ${robot.labels.NAME} or attribute ${robot.attr.NAME}.
type Constraint struct {
	Left, Operand, Right string
}

func (c Constraint) String() string { return c.Left + " " + c.Operand + " " + c.Right }

// Attributes are the names that ${robot.attr.NAME} takes beside driver.X and isolation.X, which
// are "true" if the robot offers driver X or has the isolation X in force. An attribute that the
// robot does not report is missing.
var Attributes = []string{
	"name", "hostname", "os", "arch", "kernel",
	"platform", "platform.family", "platform.version",
	"cpu.cores", "cpu.model", "cpu.vendor",
	"memory.total", "disk.total", "drivers",
	"agent.version", "agent.protocol",
}

// target is one side of a constraint, parsed.
type target struct {
	literal     string
	label, attr string // one of them names where the value is
}

func (t target) isLiteral() bool { return t.label == "" && t.attr == "" }

// parseTarget parses one side. A malformed or unknown reference is an error, because it would
// never match as text.
func parseTarget(s string) (target, error) {
	if !strings.Contains(s, "${") {
		return target{literal: s}, nil
	}
	inner, opened := strings.CutPrefix(s, "${robot.")
	inner, closed := strings.CutSuffix(inner, "}")
	if opened && closed && !strings.ContainsAny(inner, "${}") {
		if name, ok := strings.CutPrefix(inner, "labels."); ok && name != "" {
			return target{label: name}, nil
		}
		if name, ok := strings.CutPrefix(inner, "attr."); ok && IsAttribute(name) {
			return target{attr: name}, nil
		}
	}
	return target{}, fmt.Errorf("%s is not a literal, ${robot.labels.NAME} or ${robot.attr.NAME} with a known attribute name", s)
}

// Prefixes of attributes with a variable name.
const (
	attrDriver    = "driver."
	attrIsolation = "isolation."
)

// IsAttribute reports whether robots can have an attribute of this name.
func IsAttribute(attr string) bool {
	for _, prefix := range []string{attrDriver, attrIsolation} {
		if name, ok := strings.CutPrefix(attr, prefix); ok && name != "" {
			return true
		}
	}
	return slices.Contains(Attributes, attr)
}

// valueOn returns the target's value on a robot, or a text that describes what is missing.
func (t target) valueOn(r *Robot) (value, missing string) {
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

// comparison reports whether the operand holds between two values. An error means that the right
// value cannot be parsed.
type comparison func(left, right string) (bool, error)

// operands by their names.
var operands = map[string]comparison{
	"=":            func(l, r string) (bool, error) { return equalValues(l, r), nil },
	"!=":           func(l, r string) (bool, error) { return !equalValues(l, r), nil },
	">":            func(l, r string) (bool, error) { return compareValues(l, r) > 0, nil },
	">=":           func(l, r string) (bool, error) { return compareValues(l, r) >= 0, nil },
	"<":            func(l, r string) (bool, error) { return compareValues(l, r) < 0, nil },
	"<=":           func(l, r string) (bool, error) { return compareValues(l, r) <= 0, nil },
	"set_contains": func(l, r string) (bool, error) { return containsAll(l, r), nil },
	"regexp":       matchesPattern,
	"version":      inVersionRange,
}

// condition is a parsed Constraint.
type condition struct {
	Constraint
	left, right target
	holds       comparison
	// results caches the results by compared values. A fleet has few different values, and
	// numbers and versions are slow to parse.
	results map[[2]string]Rejection
}

// maxResults bounds the cache of a condition whose values differ on each robot, such as host
// names.
const maxResults = 256

// parseConstraint parses literals once instead of once per robot.
func (c Constraint) parseConstraint() (condition, error) {
	out := condition{Constraint: c, results: map[[2]string]Rejection{}}
	var err error
	if out.left, err = parseTarget(c.Left); err != nil {
		return out, err
	}
	if out.right, err = parseTarget(c.Right); err != nil {
		return out, err
	}
	var ok bool
	if out.holds, ok = operands[c.Operand]; !ok {
		return out, fmt.Errorf("unknown operand %q", c.Operand)
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
		if in, err = parseRange(c.Right); err != nil {
			return out, err
		}
		out.holds = func(l, _ string) (bool, error) { return in.containsVersion(l), nil }
	}
	return out, nil
}

// Check returns why the constraint cannot hold on any robot, or nil.
func (c Constraint) Check() error {
	parsed, err := c.parseConstraint()
	var pattern *syntax.Error
	if errors.As(err, &pattern) {
		return fmt.Errorf("rTarget is not a pattern of RE2: %s: %.100q", pattern.Code, pattern.Expr)
	}
	if err != nil {
		return err
	}
	if parsed.left.isLiteral() && parsed.right.isLiteral() && !parsed.compareTargets(c.Left, c.Right).IsZero() {
		return errors.New("compares two texts, and holds on no robot; use ${robot.labels.NAME} or ${robot.attr.NAME} for one of them")
	}
	return errors.Join(parsed.checkLabel(parsed.left, parsed.right), parsed.checkLabel(parsed.right, parsed.left))
}

// checkLabel returns why a robot cannot have the label of a target, or not with the value that the
// constraint requires.
func (c *condition) checkLabel(t, other target) error {
	if t.label == "" || c.Operand == "!=" {
		return nil
	}
	if wrong := validation.IsQualifiedName(t.label); len(wrong) > 0 {
		return fmt.Errorf("no robot can have a label %q: %s", t.label, strings.Join(wrong, "; "))
	}
	if c.Operand != "=" || !other.isLiteral() || parseNumber(other.literal) != nil {
		return nil
	}
	if wrong := validation.IsValidLabelValue(other.literal); len(wrong) > 0 {
		return fmt.Errorf("no label can have the value %q: %s", other.literal, strings.Join(wrong, "; "))
	}
	return nil
}

// checkRobot returns the rejection of one robot. A missing value meets only "!=".
func (c *condition) checkRobot(r *Robot) Rejection {
	left, missing := c.left.valueOn(r)
	right, missingRight := c.right.valueOn(r)
	missing = cmp.Or(missing, missingRight)
	if missing != "" {
		if c.Operand == "!=" {
			return Rejection{}
		}
		return Rejection{Check: CheckConstraint, Want: c.String(), Got: missing}
	}
	values := [2]string{left, right}
	v, ok := c.results[values]
	if !ok {
		v = c.compareTargets(left, right)
		if len(c.results) == maxResults {
			clear(c.results)
		}
		c.results[values] = v
	}
	return v
}

func (c *condition) compareTargets(left, right string) Rejection {
	ok, err := c.holds(left, right)
	switch {
	case err != nil:
		return rejectSyntax(c.Constraint, err)
	case ok:
		return Rejection{}
	}
	return Rejection{Check: CheckConstraint, Want: c.String()}
}

func rejectSyntax(c Constraint, err error) Rejection {
	return Rejection{Check: CheckConstraintSyntax, Want: c.String(), Got: err.Error()}
}

func matchesPattern(text, pattern string) (bool, error) {
	re, err := regexp.Compile(pattern)
	if err != nil {
		return false, err
	}
	return re.MatchString(text), nil
}

func inVersionRange(version, in string) (bool, error) {
	r, err := parseRange(in)
	if err != nil {
		return false, err
	}
	return r.containsVersion(version), nil
}

// containsAll reports whether every item of the right list is in the left list. Items are
// separated by commas.
func containsAll(left, right string) bool {
	has := splitList(left)
	for _, want := range splitList(right) {
		if !slices.Contains(has, want) {
			return false
		}
	}
	return true
}

func splitList(list string) []string {
	out := strings.Split(list, ",")
	for i := range out {
		out[i] = strings.TrimSpace(out[i])
	}
	return out
}
