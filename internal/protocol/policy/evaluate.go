package policy

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Violation is a part of a task that a policy does not allow.
type Violation struct {
	// Field of the task's spec, such as config.execConfig.command, or metadata.namespace.
	Field string
	// Value of the field.
	Value string
	// Rule is the name of the rule that does not allow it. It is empty if the policy allows
	// nothing, because the robot cannot use its file.
	Rule string
}

// String returns a sentence such as: driver "raw_exec" is not allowed by the policy of the robot
// (allow.drivers).
func (v Violation) String() string {
	if v.Rule == "" {
		return fmt.Sprintf("the robot cannot use its policy file and allows nothing: %.300s", v.Value)
	}
	return fmt.Sprintf("%s %.200q is not allowed by the policy of the robot (allow.%s)", v.Field, v.Value, v.Rule)
}

// WithPath returns the sentence with the path of the task in front of the field. The namespace is
// that of the whole object.
func (v Violation) WithPath(path string) string {
	if v.Rule != "" && v.Rule != RuleNamespaces {
		v.Field = path + "." + v.Field
	}
	return v.String()
}

// Error is the error of a task that a policy does not allow. It has at least one violation.
type Error struct{ Violations []Violation }

// Error returns the sentences of all violations.
func (e *Error) Error() string {
	var all []string
	for _, v := range e.Violations {
		all = append(all, v.String())
	}
	return strings.Join(all, "; ")
}

// IsUnusable reports whether the policy allows nothing because the robot cannot use its file.
func (e *Error) IsUnusable() bool { return e.Violations[0].Rule == "" }

// Check returns an *Error if the policy does not allow the task.
func (p *Policy) Check(s Subject) error {
	if violations := Evaluate(p, s); len(violations) > 0 {
		return &Error{violations}
	}
	return nil
}

// Evaluate returns what the policy does not allow of a task, in the order of RuleNames. It allows the
// task if there is nothing.
func Evaluate(p *Policy, s Subject) []Violation {
	if p == nil {
		return nil
	}
	if p.Problem != "" {
		return []Violation{{Value: p.Problem}}
	}
	e := &evaluation{}
	r := &p.Allow
	e.requireName(r.Namespaces, RuleNamespaces, "metadata.namespace", s.Namespace)
	e.requireName(r.Drivers, RuleDrivers, "driver", s.Driver)
	if s.User != "" && !s.IsContainer() {
		e.requireName(r.Users, RuleUsers, "user", s.User)
	}
	if r.Root != nil && !*r.Root && IsRoot(s.User) {
		e.add(RuleRoot, "user", s.User)
	}
	if s.IsContainer() {
		e.evaluateContainer(r, s)
	} else if r.Commands != nil {
		e.evaluateCommand(r.Commands, s)
	}
	for _, name := range s.Devices {
		e.requireName(r.Devices, RuleDevices, "resources.devices", name)
	}
	return e.violations
}

// IsRoot reports whether a task's user, as NAME or NAME:GROUP, is root. Admission recognizes the
// same names (config/admission/privileges.yaml).
func IsRoot(user string) bool {
	name, _, _ := strings.Cut(user, ":")
	return name == "root" || name != "" && strings.Trim(name, "0") == ""
}

// evaluation collects violations.
type evaluation struct{ violations []Violation }

func (e *evaluation) add(rule, field, value string) {
	e.violations = append(e.violations, Violation{Field: field, Value: value, Rule: rule})
}

// requireName adds a violation if a rule does not contain the name.
func (e *evaluation) requireName(list []string, rule, field, name string) {
	if list != nil && !slices.Contains(list, name) {
		e.add(rule, field, name)
	}
}

func (e *evaluation) evaluateContainer(r *Rules, s Subject) {
	const config = "config.dockerConfig."
	if r.Images != nil && !slices.ContainsFunc(r.Images, func(entry string) bool { return allowsImage(entry, s.Image) }) {
		e.add(RuleImages, config+"image", s.Image)
	}
	for i, volume := range s.Volumes {
		if r.Mounts != nil && !slices.ContainsFunc(r.Mounts, func(entry string) bool { return allowsVolume(entry, volume) }) {
			e.add(RuleMounts, fmt.Sprintf("%svolumes[%d]", config, i), volume)
		}
	}
	e.requireName(r.Networks, RuleNetworks, config+"networkMode", networkName(s.Network))
}

// networkName returns the name of a network mode in a policy.
func networkName(mode string) string {
	kind, _, other := strings.Cut(mode, ":")
	switch {
	case mode == "":
		return "default"
	case other:
		return kind
	}
	return mode
}

// evaluateCommand evaluates what a process of the robot runs. The variables could make an allowed
// program load other code.
func (e *evaluation) evaluateCommand(allowed []string, s Subject) {
	field := "config.execConfig.command"
	if s.Driver == driverJava {
		field = "driver"
	}
	if !s.HasReferences() && !slices.ContainsFunc(allowed, func(entry string) bool { return allowsCommand(entry, s.Command) }) {
		e.add(RuleCommands, field, s.Command)
	}
	for _, name := range s.LoaderVariables {
		e.add(RuleCommands, "env", name)
	}
}

// allowsCommand reports whether an entry allows a command. A relative path is never allowed: the
// task itself puts files into its directory.
func allowsCommand(entry, command string) bool {
	switch {
	case !strings.Contains(entry, "/"):
		return command == entry
	case !path.IsAbs(command) || hasParentStep(command):
		return false
	case strings.HasSuffix(entry, "/"):
		return isBelow(path.Clean(entry), path.Clean(command))
	}
	return path.Clean(command) == path.Clean(entry)
}

// isBelow reports whether a clean path is below a clean directory.
func isBelow(dir, p string) bool {
	return p != dir && strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/")
}

// allowsVolume reports whether an entry allows a volume of the form host:container[:ro].
func allowsVolume(entry, volume string) bool {
	dir, onlyReading := strings.CutSuffix(entry, ":ro")
	part := strings.Split(volume, ":")
	if len(part) < 2 || len(part) > 3 || !path.IsAbs(part[0]) || hasParentStep(part[0]) {
		return false
	}
	if onlyReading && (len(part) < 3 || part[2] != "ro") {
		return false
	}
	dir, source := path.Clean(dir), path.Clean(part[0])
	return source == dir || isBelow(dir, source)
}
