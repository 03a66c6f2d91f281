package wire

import (
	"maps"
	"slices"

	"k8s4r.io/k8s4r/internal/protocol/policy"
)

// PolicySubject returns what the policy of a robot evaluates of the task.
func (t Task) PolicySubject() policy.Subject {
	c := t.Spec.Config
	s := policy.Subject{Namespace: t.Metadata.Namespace, Driver: t.Spec.Driver, User: t.Spec.User}
	if t.Spec.Resources != nil {
		s.Devices = slices.Sorted(maps.Keys(t.Spec.Resources.Devices))
	}
	if s.IsContainer() {
		if c.Docker != nil {
			s.Image, s.Network, s.Volumes = c.Docker.Image, c.Docker.NetworkMode, c.Docker.Volumes
		}
		return s
	}
	command := ""
	if c.Exec != nil {
		command = c.Exec.Command
	}
	s.SetCommand(command)
	names := slices.Concat(slices.Collect(maps.Keys(t.Spec.Env)), slices.Collect(maps.Keys(t.Spec.SecretEnv)))
	s.LoaderVariables = policy.LoaderVariables(names)
	return s
}
