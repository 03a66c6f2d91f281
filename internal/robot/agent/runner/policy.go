package runner

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s4r.io/k8s4r/internal/protocol/policy"
	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/isolation"
	"k8s4r.io/k8s4r/internal/robot/shim"
)

// noPolicy allows everything.
type noPolicy struct{}

func (noPolicy) Read() *policy.Policy { return nil }

// reasonOfError returns the reason of an attempt that does not run because of an error, which is
// usual unless the policy does not allow the task.
func reasonOfError(err error, usual string) string {
	refused, ok := errors.AsType[*policy.Error](err)
	switch {
	case !ok:
		return usual
	case refused.IsUnusable():
		return wire.ReasonPolicyUnusable
	}
	return wire.ReasonPolicyViolation
}

// applyPolicy evaluates an accepted task again right before it starts: the policy may have changed, the
// references in its command are replaced now, and its volumes may be symbolic links. The container
// gets the paths that were evaluated.
func (r *Runner) applyPolicy(attempt *attempt, s *shim.Spec) error {
	p := r.policy.Read()
	if p == nil {
		return nil
	}
	task := attempt.task
	task.Spec.Config = s.Config
	subject := task.PolicySubject()
	subject.IsResolved = true
	if p.Allow.Mounts == nil || len(subject.Volumes) == 0 {
		return p.Check(subject)
	}
	volumes, err := resolveVolumes(subject.Volumes)
	if err != nil {
		return err
	}
	docker := *s.Config.Docker
	docker.Volumes, s.Config.Docker = volumes, &docker
	subject.Volumes = volumes
	resolved := *p
	resolved.Allow.Mounts = resolveMounts(p.Allow.Mounts)
	return resolved.Check(subject)
}

// resolveVolumes returns volumes without symbolic links in their paths on the robot. A path that does
// not exist is an error: a link could be put there before the engine mounts it.
func resolveVolumes(volumes []string) (out []string, err error) {
	for i, volume := range volumes {
		source, rest, _ := strings.Cut(volume, ":")
		real, err := filepath.EvalSymlinks(source)
		if err != nil {
			return nil, fmt.Errorf("config.dockerConfig.volumes[%d]: %w", i, err)
		}
		if strings.Contains(real, ":") {
			return nil, fmt.Errorf("config.dockerConfig.volumes[%d]: %q is a link to a path with a colon, which cannot be mounted", i, source)
		}
		out = append(out, real+":"+rest)
	}
	return out, nil
}

// resolveMounts returns the entries of the rule mounts without symbolic links. Those that do not exist
// are kept.
func resolveMounts(entries []string) []string {
	out := []string{} // not nil: an empty list is a rule
	for _, entry := range entries {
		dir, readOnly := strings.CutSuffix(entry, ":ro")
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			dir = real
		}
		if readOnly {
			dir += ":ro"
		}
		out = append(out, dir)
	}
	return out
}

// checkRoot returns an error if a process would run as root and the policy does not allow that,
// whatever the name of its user.
func (r *Runner) checkRoot(u *isolation.User) error {
	p := r.policy.Read()
	if p == nil || p.Allow.Root == nil || *p.Allow.Root {
		return nil
	}
	uid, name := uint32(os.Geteuid()), "root"
	if u != nil {
		uid, name = u.UID, u.Name
	}
	if uid != 0 {
		return nil
	}
	return &policy.Error{Violations: []policy.Violation{{Field: "user", Value: name, Rule: policy.RuleRoot}}}
}
