package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/protocol/agentupdate"
)

// Bounds of the manifests of a Rollout of agents.
const (
	maxArtifacts   = 16
	maxArtifactURL = 2048
)

const agentUsage = "must be MANIFEST=URL, such as arm64.json=https://example.com/k8s4r-agent-arm64"

// readRelease reads the manifests of --agent, which must be of one version and of different platforms.
func readRelease(specs []string) (*robotv1.AgentRelease, error) {
	if len(specs) > maxArtifacts {
		return nil, fmt.Errorf("--agent: at most %d programs", maxArtifacts)
	}
	out := &robotv1.AgentRelease{}
	for _, spec := range specs {
		m, source, err := readAgentManifest(spec)
		switch {
		case err != nil:
			return nil, fmt.Errorf("--agent=%s: %w", shortenText(spec, 80), err)
		case out.Version != "" && m.Version != out.Version:
			return nil, fmt.Errorf("--agent=%s: the program is of version %s, and another one of %s; a rollout has one version", shortenText(spec, 80), m.Version, out.Version)
		case out.FindArtifact(m.OS, m.Arch) != nil:
			return nil, fmt.Errorf("--agent=%s: another program is for %s/%s, too; name one for each platform", shortenText(spec, 80), m.OS, m.Arch)
		}
		out.Version = m.Version
		out.Artifacts = append(out.Artifacts, robotv1.AgentArtifact{OS: m.OS, Arch: m.Arch, Source: source, Size: m.Size, SHA256: m.SHA256, Signature: m.Signature})
	}
	return out, nil
}

// readAgentManifest reads the manifest of MANIFEST=URL.
func readAgentManifest(spec string) (m agentupdate.Manifest, source string, err error) {
	path, source, err := splitAgentSpec(spec)
	if err != nil {
		return m, "", err
	}
	f, err := os.Open(path)
	if err != nil {
		return m, "", fmt.Errorf("read the manifest: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, agentupdate.MaxManifest+1))
	if err != nil {
		return m, "", fmt.Errorf("read the manifest: %w", err)
	}
	if m, err = agentupdate.Parse(text); err != nil {
		return m, "", fmt.Errorf("%s is no manifest of agent-key sign: %w", path, err)
	}
	return m, source, nil
}

// splitAgentSpec splits MANIFEST=URL.
func splitAgentSpec(spec string) (path, source string, err error) {
	for _, scheme := range []string{"https://", "http://"} {
		if path, rest, found := strings.Cut(spec, "="+scheme); found && path != "" && rest != "" {
			source = scheme + rest
			if len(source) > maxArtifactURL || strings.ContainsAny(source, " \t\r\n") {
				return "", "", fmt.Errorf("the URL must have at most %d characters, and no spaces", maxArtifactURL)
			}
			return path, source, nil
		}
	}
	return "", "", errors.New(agentUsage)
}

// parseRobotLabels parses KEY=VALUE,...
func parseRobotLabels(text string) (map[string]string, error) {
	out := map[string]string{}
	for part := range strings.SplitSeq(text, ",") {
		key, value, found := strings.Cut(strings.TrimSpace(part), "=")
		if _, has := out[key]; has || !found || len(validation.IsQualifiedName(key)) > 0 || len(validation.IsValidLabelValue(value)) > 0 {
			return nil, fmt.Errorf("--selector=%s: must be KEY=VALUE, each key once, such as site=hall,model=rover", shortenText(text, 80))
		}
		out[key] = value
	}
	return out, errorUnless(len(out) <= maxLabels, "--selector: at most %d labels", maxLabels)
}

// makeAgentTarget makes the target of a Rollout of agents.
func (o *startRolloutOptions) makeAgentTarget(s *robotv1.RolloutSpec) error {
	release, err := readRelease(o.agents)
	s.Target = robotv1.RolloutTarget{Kind: robotv1.TargetAgent, Agent: release}
	if o.selector == "" {
		return err
	}
	var selectorErr error
	s.RobotSelector, selectorErr = parseRobotLabels(o.selector)
	return errors.Join(err, selectorErr)
}

// agentRolloutName returns the beginning of the name of a Rollout of agents.
func agentRolloutName(version string) string {
	clean := strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' {
			return c
		}
		return '-'
	}, strings.ToLower(version))
	return "agent-" + strings.Trim(clean, "-")
}
