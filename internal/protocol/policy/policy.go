// Package policy evaluates whether a robot's own policy allows a task. The robot enforces it before it
// accepts a task, whatever the server sends. Placement evaluates the policy that the robot has
// registered in the same way, so that a task is not sent to a robot that would refuse it.
package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"reflect"
	"strings"
)

// The header of a policy file.
const (
	APIVersion = "robot.k8s4r.io/v1alpha1"
	Kind       = "RobotPolicy"
)

// The bounds of a policy: of the file and of its JSON in bytes, of the entries of a rule, and of an
// entry in bytes.
const (
	MaxSize    = 8 << 10
	MaxEntries = 256
	MaxEntry   = 512
	MaxProblem = 1 << 10
)

// Policy is what a robot allows. A nil Policy allows everything.
type Policy struct {
	// Allow holds the rules. A task must meet all of them.
	Allow Rules `json:"allow,omitzero"`
	// Problem is why the robot cannot use its policy file. If it is set, nothing is allowed.
	Problem string `json:"problem,omitempty"`
}

// Rules limit tasks. A rule that is nil limits nothing; an empty list allows nothing of its kind.
type Rules struct {
	// Namespaces whose tasks are allowed.
	Namespaces []string `json:"namespaces,omitzero"`
	// Drivers that are allowed: exec, raw_exec, docker, java.
	Drivers []string `json:"drivers,omitzero"`
	// Users are accounts of the robot that tasks may name. Tasks that name none run as the agent's
	// --task-user, which needs no entry. Containers have users of their own.
	Users []string `json:"users,omitzero"`
	// Root allows tasks to be root, also in a container. If nil, Users decides.
	Root *bool `json:"root,omitempty"`
	// Commands are programs of the robot: a path, a directory that ends in a slash and allows all
	// programs below it, or a name, which is looked up in the robot's default PATH. Tasks of the
	// driver java run the name java.
	Commands []string `json:"commands,omitzero"`
	// Images of containers: a repository with or without tag or digest, or a prefix that ends in a
	// slash and allows all repositories below it.
	Images []string `json:"images,omitzero"`
	// Mounts are paths of the robot that containers may mount, with everything below them. The
	// suffix :ro allows them only read-only.
	Mounts []string `json:"mounts,omitzero"`
	// Networks are network modes of containers. The name default stands for no mode, the name
	// container for the network of any other container.
	Networks []string `json:"networks,omitzero"`
	// Devices are names of devices that tasks may reserve.
	Devices []string `json:"devices,omitzero"`
}

// The names of the rules, as in a file.
const (
	RuleNamespaces = "namespaces"
	RuleDrivers    = "drivers"
	RuleUsers      = "users"
	RuleRoot       = "root"
	RuleCommands   = "commands"
	RuleImages     = "images"
	RuleMounts     = "mounts"
	RuleNetworks   = "networks"
	RuleDevices    = "devices"
)

// RuleNames returns the names of all rules, in the order in which they are evaluated.
func RuleNames() []string {
	return []string{RuleNamespaces, RuleDrivers, RuleUsers, RuleRoot, RuleCommands, RuleImages, RuleMounts, RuleNetworks, RuleDevices}
}

// ListOf returns the list of a rule, or nil if the rule has no list of this name.
func (r *Rules) ListOf(rule string) *[]string {
	switch rule {
	case RuleNamespaces:
		return &r.Namespaces
	case RuleDrivers:
		return &r.Drivers
	case RuleUsers:
		return &r.Users
	case RuleCommands:
		return &r.Commands
	case RuleImages:
		return &r.Images
	case RuleMounts:
		return &r.Mounts
	case RuleNetworks:
		return &r.Networks
	case RuleDevices:
		return &r.Devices
	}
	return nil
}

// AllowNothing returns the policy of a robot that cannot use its policy file.
func AllowNothing(problem string) *Policy {
	if problem == "" {
		problem = "the policy cannot be used"
	}
	return &Policy{Problem: strings.ToValidUTF8(problem[:min(len(problem), MaxProblem)], "")}
}

// Equal reports whether two policies allow the same and are written the same.
func (p *Policy) Equal(o *Policy) bool { return p == o || reflect.DeepEqual(p, o) }

// Key returns a text that is equal for equal policies.
func (p *Policy) Key() string {
	if p == nil {
		return ""
	}
	b, err := json.Marshal(p)
	if err != nil {
		panic(err) // texts can always be encoded
	}
	return string(b)
}

// Validate returns an error if a policy exceeds the bounds, has an entry that can match nothing, or
// has no rule.
func (p *Policy) Validate() error {
	var errs []error
	rules := 0
	if p.Allow.Root != nil {
		rules++
	}
	for _, name := range RuleNames() {
		list := p.Allow.ListOf(name)
		if list == nil || *list == nil {
			continue
		}
		rules++
		if len(*list) > MaxEntries {
			errs = append(errs, fmt.Errorf("allow.%s: has more than %d entries", name, MaxEntries))
			continue
		}
		for i, entry := range *list {
			if err := validateEntry(name, entry); err != nil {
				errs = append(errs, fmt.Errorf("allow.%s[%d] %.100q: %w", name, i, entry, err))
			}
		}
	}
	switch {
	case len(p.Problem) > MaxProblem:
		errs = append(errs, fmt.Errorf("problem: is longer than %d bytes", MaxProblem))
	case rules == 0 && p.Problem == "":
		errs = append(errs, fmt.Errorf("allow: has no rule; the rules are %s", strings.Join(RuleNames(), ", ")))
	}
	if len(p.Key()) > MaxSize {
		errs = append(errs, fmt.Errorf("is longer than %d KiB", MaxSize>>10))
	}
	return errors.Join(errs...)
}

// validateEntry returns an error for an entry that can match nothing, or not what its author means.
func validateEntry(rule, entry string) error {
	switch {
	case entry == "":
		return errors.New("must not be empty")
	case len(entry) > MaxEntry:
		return fmt.Errorf("must have at most %d bytes", MaxEntry)
	case strings.ContainsFunc(entry, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '\ufffd' }):
		return errors.New("must not contain spaces or control characters")
	}
	switch rule {
	case RuleCommands:
		if strings.Contains(entry, "/") {
			return validatePath(entry)
		}
	case RuleMounts:
		return validatePath(strings.TrimSuffix(entry, ":ro"))
	case RuleImages:
		return validateImage(entry)
	default:
		if strings.Contains(entry, "*") {
			return errors.New("must be the whole name; patterns are not supported")
		}
	}
	return nil
}

// validatePath returns an error for a path that no task could have, because theirs are cleaned.
func validatePath(entry string) error {
	switch {
	case !path.IsAbs(entry):
		return errors.New("must be an absolute path")
	case hasParentStep(entry):
		return errors.New("must not contain a step .. to the parent directory")
	case strings.ContainsAny(entry, "*:"):
		return errors.New("must be a path; patterns are not supported")
	}
	return nil
}

// hasParentStep reports whether a path has a component "..".
func hasParentStep(p string) bool {
	for part := range strings.SplitSeq(p, "/") {
		if part == ".." {
			return true
		}
	}
	return false
}
