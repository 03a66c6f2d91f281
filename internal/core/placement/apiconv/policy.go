package apiconv

import (
	"maps"
	"slices"
	"unique"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/placement"
	"k8s4r.io/k8s4r/internal/protocol/policy"
)

// policyFrom returns the policy that a robot has registered, or nil.
func policyFrom(p *v1alpha1.RobotPolicy) *placement.Policy {
	if p == nil {
		return nil
	}
	return placement.NewPolicy(&policy.Policy{Allow: policy.Rules(p.Allow), Problem: p.Problem})
}

// SubjectOf returns what the policies of robots evaluate of a task of this definition. The robot's agent
// does the same with the Task that it is sent (wire.Task.PolicySubject).
func SubjectOf(namespace string, def *v1alpha1.TaskDefinition) policy.Subject {
	c := def.Config
	s := policy.Subject{Namespace: namespace, Driver: def.Driver, User: def.User}
	if def.Resources != nil {
		s.Devices = slices.Sorted(maps.Keys(def.Resources.Devices))
	}
	if s.IsContainer() {
		if c.DockerConfig != nil {
			s.Image, s.Network, s.Volumes = c.DockerConfig.Image, c.DockerConfig.NetworkMode, volumeTexts(c.DockerConfig.Volumes)
		}
		return s
	}
	command := ""
	if c.ExecConfig != nil {
		command = c.ExecConfig.Command
	}
	s.SetCommand(command)
	names := slices.Concat(slices.Collect(maps.Keys(def.Env)), slices.Collect(maps.Keys(def.SecretEnv)))
	s.LoaderVariables = policy.LoaderVariables(names)
	return s
}

func volumeTexts(volumes []v1alpha1.VolumeMount) (out []string) {
	for _, v := range volumes {
		out = append(out, string(v))
	}
	return out
}

// subjectKey returns the key of the subject of a task. Equal keys share their memory.
func subjectKey(namespace string, def *v1alpha1.TaskDefinition) string {
	s := SubjectOf(namespace, def)
	return unique.Make(s.Key()).Value()
}
