package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/protocol/agentupdate"
	"k8s4r.io/k8s4r/internal/testkit/golden"
)

func validManifest(arch string) agentupdate.Manifest {
	return agentupdate.Manifest{Version: "v0.5.0", OS: "linux", Arch: arch, Size: 5, SHA256: strings.Repeat("0a", 32), Signature: strings.Repeat("A", 86) + "=="}
}

// manifestFile returns the path of a file with a manifest.
func manifestFile(t *testing.T, dir, name string, m any) string {
	t.Helper()
	name = filepath.Join(dir, name)
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// ofAgents makes a Rollout one of agents.
func ofAgents(r *robotv1.Rollout) {
	r.Spec.Target = robotv1.RolloutTarget{Kind: robotv1.TargetAgent, Agent: &robotv1.AgentRelease{Version: "v0.5.0"}}
	r.Status.Revision, r.Status.FromRevision, r.Status.Version = 0, 0, "v0.5.0"
}

func TestRolloutOfAgents_PrintsResult(t *testing.T) {
	dir := t.TempDir()
	arm, amd := manifestFile(t, dir, "arm64.json", validManifest("arm64")), manifestFile(t, dir, "amd64.json", validManifest("amd64"))
	for _, row := range []struct {
		golden string
		args   []string
	}{
		{"rollout-agents-start", []string{"rollout", "start", "--agent", arm + "=https://example.com/a?x=1", "--agent", amd + "=http://10.0.0.1/agent",
			"--selector", "site=hall,model=rover", "--wave", "1", "--max-unavailable", "5%", "--dry-run", "-o", "yaml"}},
		{"rollout-agents-name", []string{"rollout", "start", "--agent", arm + "=https://example.com/a", "-o", "name"}},
		{"rollout-agents-status", []string{"rollout", "status", "agents"}},
		{"rollout-agents-list", []string{"rollout", "list"}},
		{"rollout-agents-abort", []string{"rollout", "abort", "agents-done"}},
		{"rollout-agents-of-job", []string{"rollout", "status", "job/v0.5.0"}},
	} {
		t.Run(row.golden, func(t *testing.T) {
			b := newBench(t, rolloutOf("agents", "", robotv1.RolloutAborted, ofAgents, ended), rolloutOf("agents-done", "", robotv1.RolloutComplete, ofAgents, ended))
			golden.Equal(t, row.golden, strings.ReplaceAll(b.transcript(b.run(row.args...)), dir+"/", "DIR/"))
		})
	}
}

func TestRolloutStart_RejectsInvalidAgents(t *testing.T) {
	const url = "=https://example.com/a"
	dir := t.TempDir()
	good := manifestFile(t, dir, "good.json", validManifest("arm64")) + url
	changed := func(name string, change func(*agentupdate.Manifest)) string {
		m := validManifest("amd64")
		change(&m)
		return manifestFile(t, dir, name, m) + url
	}
	start := func(specs ...string) []string {
		args := []string{"rollout", "start"}
		for _, spec := range specs {
			args = append(args, "--agent", spec)
		}
		return args
	}
	var many []string
	for range maxArtifacts + 1 {
		many = append(many, good)
	}
	for want, args := range map[string][]string{
		"requires either the name of a Job or --agent":       {"rollout", "start"},
		"requires either the name of a Job":                  append(start(good), "demo"),
		"must be MANIFEST=URL":                               start("good.json"),
		"must be MANIFEST=URL, such":                         start("good.json=ftp://example.com/a"),
		"read the manifest: open missing.json":               start("missing.json" + url),
		"is no manifest of agent-key sign":                   start(manifestFile(t, dir, "unknown.json", map[string]any{"version": "v1", "force": true}) + url),
		"longer than 4096 bytes":                             start(manifestFile(t, dir, "long.json", strings.Repeat("x", agentupdate.MaxManifest)) + url),
		"version: must be at most 64":                        start(changed("version.json", func(m *agentupdate.Manifest) { m.Version = "v 1" })),
		"os: must be a name":                                 start(changed("os.json", func(m *agentupdate.Manifest) { m.OS = "" })),
		"arch: must be a name":                               start(changed("arch.json", func(m *agentupdate.Manifest) { m.Arch = "ARM" })),
		"size: must be from 1":                               start(changed("size.json", func(m *agentupdate.Manifest) { m.Size = 1 << 40 })),
		"sha256: must be 64":                                 start(changed("sum.json", func(m *agentupdate.Manifest) { m.SHA256 = "0a" })),
		"signature: must be 64 bytes":                        start(changed("sig.json", func(m *agentupdate.Manifest) { m.Signature = "A" })),
		"another one of v0.5.0; a rollout has one version":   start(good, changed("other.json", func(m *agentupdate.Manifest) { m.Version = "v0.6.0" })),
		"another program is for linux/arm64, too":            start(good, good),
		"--agent: at most 16 programs":                       start(many...),
		"the URL must have at most 2048 characters":          start("good.json=https://" + strings.Repeat("x", maxArtifactURL)),
		"--revision=2: cannot be combined with --agent":      append(start(good), "--revision", "2"),
		"--selector=site: must be KEY=VALUE":                 append(start(good), "--selector", "site"),
		"--selector=a=b,a=c: must be KEY=VALUE, each key on": append(start(good), "--selector", "a=b,a=c"),
		"--selector=a=b: requires --agent":                   {"rollout", "start", "demo", "--selector", "a=b"},
	} {
		t.Run(want, func(t *testing.T) {
			b := newBench(t)
			if status := b.run(args...); status != ExitUsage || !strings.Contains(b.err.String(), want) {
				t.Errorf("%v: exit %d, stderr lacks %q:\n%s", args, status, want, b.err.String())
			}
		})
	}
}
