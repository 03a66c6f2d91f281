package agent

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s4r.io/k8s4r/internal/protocol/logs/record"
	"k8s4r.io/k8s4r/internal/protocol/policy"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// policyFile writes a policy with these rules, in YAML, and returns its path.
func policyFile(t *testing.T, rules string) string {
	t.Helper()
	path := filepath.Join(openDir(t), "policy.yaml")
	must(t, os.Chmod(filepath.Dir(path), 0o755))
	writePolicy(t, path, rules)
	return path
}

func writePolicy(t *testing.T, path, rules string) {
	t.Helper()
	text := "apiVersion: robot.k8s4r.io/v1alpha1\nkind: RobotPolicy\nallow: " + rules + "\n"
	must(t, os.WriteFile(path, []byte(text), 0o644))
	must(t, os.Chmod(path, 0o644))
}

// registeredPolicies returns the policies of all registrations so far.
func (s *fakeServer) registeredPolicies() (all []*policy.Policy) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.registers {
		all = append(all, r.Policy)
	}
	return all
}

// TestPolicy_IsEnforcedWhateverTheServerSends shows that the agent accepts no task that its policy
// does not allow, and that a change of the file needs no restart.
func TestPolicy_IsEnforcedWhateverTheServerSends(t *testing.T) {
	s := newFakeServer(t)
	c := s.config(openDir(t))
	c.TaskUser, c.PolicyFile = otherUser, policyFile(t, "{commands: [/bin/sh], users: [], root: false}")
	a := startAgent(t, c)
	s.awaitRegistered(1)
	run := func(uid, command string, change ...func(*wire.Task)) wire.Status {
		t.Helper()
		task := shell(uid, "exit 0", change...)
		task.Spec.Config.Exec.Command = command
		s.dispatch(task, 1)
		return s.awaitEnd(uid, 1)
	}
	refused := func(end wire.Status, reason, message string) {
		t.Helper()
		if end.State != wire.ReportFailed || end.Reason != reason || !strings.Contains(end.Message, message) {
			t.Errorf("ended as %+v, want %s: %s", end, reason, message)
		}
		if e, known := a.journal.Get(end.TaskUID, 1); !known || !e.HasEnded() || e.Task != nil || len(s.distinctReports(end.TaskUID, 1)) != 1 {
			t.Errorf("the journal has %+v, want only the end", e)
		}
	}
	if end := run("t1", "/bin/sh"); end.State != wire.ReportCompleted {
		t.Errorf("ended as %+v", end)
	}
	refused(run("t2", "/usr/bin/env"), wire.ReasonPolicyViolation, `config.execConfig.command "/usr/bin/env" is not allowed by the policy of the robot (allow.commands)`)
	refused(run("t3", "/bin/sh", func(w *wire.Task) { w.Spec.User = "root" }), wire.ReasonPolicyViolation, `user "root" is not allowed`)
	refused(run("t4", "/bin/sh", func(w *wire.Task) { w.Spec.Env = map[string]string{"LD_PRELOAD": "./x.so"} }), wire.ReasonPolicyViolation, `env "LD_PRELOAD"`)

	writePolicy(t, c.PolicyFile, "{commands: [/usr/bin/env]}")
	refused(run("t5", "/bin/sh"), wire.ReasonPolicyViolation, `"/bin/sh" is not allowed`)
	waitUntil(t, "the changed policy to be registered", func() bool {
		all := s.registeredPolicies()
		return len(all) > 1 && strings.Join(all[len(all)-1].Allow.Commands, ",") == "/usr/bin/env"
	})
	writePolicy(t, c.PolicyFile, "{commands: }")
	refused(run("t6", "/usr/bin/env"), wire.ReasonPolicyUnusable, "allow.commands: must be a list")
	waitUntil(t, "the problem to be registered", func() bool {
		all := s.registeredPolicies()
		return all[len(all)-1].Problem != ""
	})
	must(t, os.Remove(c.PolicyFile))
	refused(run("t7", "/usr/bin/env"), wire.ReasonPolicyUnusable, "was removed")
}

// TestPolicy_EvaluatesReferencesWhenTheyAreReplaced shows that a command with references is evaluated with
// their values, before it starts.
func TestPolicy_EvaluatesReferencesWhenTheyAreReplaced(t *testing.T) {
	s := newFakeServer(t)
	dir := openDir(t)
	c := s.config(dir)
	c.TaskUser, c.PolicyFile = otherUser, policyFile(t, "{commands: [/bin/sh]}")
	startAgent(t, c)
	s.awaitRegistered(1)
	for uid, program := range map[string]string{"allowed": "sh", "refused": "../usr/bin/env"} {
		task := shell(uid, "echo ran", func(w *wire.Task) { w.Spec.Meta = map[string]string{"program": program} })
		task.Spec.Config.Exec.Command = "/bin/${meta.program}"
		s.dispatch(task, 1)
	}
	if end := s.awaitEnd("allowed", 1); end.State != wire.ReportCompleted || output(t, dir, "allowed", 1, record.Stdout) != "ran\n" {
		t.Errorf("ended as %+v", end)
	}
	if end := s.awaitEnd("refused", 1); end.Reason != wire.ReasonPolicyViolation || end.StartedAt != nil || !strings.Contains(end.Message, "/bin/../usr/bin/env") {
		t.Errorf("ended as %+v", end)
	}
}

func TestPolicy_AgentDoesNotStart(t *testing.T) {
	exposed := policyFile(t, "{root: false}")
	must(t, os.Chmod(exposed, 0o666))
	for name, c := range map[string]struct{ file, user, want string }{
		"with a file that is missing":            {filepath.Join(t.TempDir(), "none"), otherUser, "policy: "},
		"with a file that is not valid":          {policyFile(t, "{root: 1}"), otherUser, "line 3: allow.root: must be true or false"},
		"with a file that all users may change":  {exposed, otherUser, "chmod go-w " + exposed},
		"with a file that forbids its task user": {policyFile(t, "{root: false}"), "", "configure another taskUser"},
	} {
		t.Run(name, func(t *testing.T) {
			config := newFakeServer(t).config(t.TempDir())
			config.PolicyFile, config.TaskUser = c.file, c.user
			a, err := New(config, slog.New(slog.DiscardHandler))
			if err == nil {
				a.closeParts()
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %s", err, c.want)
			}
		})
	}
}

func TestPolicyCheck(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		must(t, os.WriteFile(path, []byte(text), 0o666))
		return path
	}
	const header = "apiVersion: robot.k8s4r.io/v1alpha1\n"
	file := write("policy.yaml", header+"kind: RobotPolicy\nallow: {namespaces: [default], drivers: [exec], commands: [/opt/], root: false}\n")
	good := write("good.yaml", header+"kind: Job\nmetadata: {name: good}\nspec: {taskGroups: [{name: g, tasks: [{name: a, driver: exec, config: {execConfig: {command: '/opt/${meta.x}'}}}]}]}\n")
	bad := write("bad.yaml", header+"kind: Job\nmetadata: {name: bad, namespace: prod}\nspec: {taskGroups: [{name: g, tasks: [{name: a, driver: docker, user: root, config: {dockerConfig: {image: alpine}}}]}]}\n")
	for name, c := range map[string]struct {
		args   []string
		status int
		want   string
	}{
		"a policy alone":          {[]string{"check", "--policy", file}, 0, file + " is valid."},
		"a job that is allowed":   {[]string{"check", "--policy", file, good}, 0, good + ": 1 task checked."},
		"references":              {[]string{"check", "--policy", file, good}, 0, "Job/good: spec.taskGroups[0].tasks[0].config.execConfig.command: has references"},
		"another namespace":       {[]string{"check", "--policy", file, "--namespace", "prod", good}, 1, `metadata.namespace "prod" is not allowed by the policy of the robot (allow.namespaces)`},
		"a job that is refused":   {[]string{"check", "--policy", file, bad}, 1, bad + `: Job/bad: spec.taskGroups[0].tasks[0].driver "docker" is not allowed by the policy of the robot (allow.drivers)`},
		"all of a job":            {[]string{"check", "--policy", file, good, bad}, 1, "3 values are not allowed."},
		"a policy that is none":   {[]string{"check", "--policy", good}, 2, "line 3: metadata is not a key"},
		"a manifest that is none": {[]string{"check", "--policy", file, write("x", "- 1")}, 2, "document 1: "},
		"a missing policy":        {[]string{"check", "--policy", filepath.Join(dir, "none")}, 2, "no such file"},
		"no subcommand":           {[]string{}, 2, "the subcommand is check"},
		"another subcommand":      {[]string{"show"}, 2, "the subcommand is check"},
		"help":                    {[]string{"check", "--help"}, 0, "Usage: k8s4r-agent policy check"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			status := Main(append([]string{"policy"}, c.args...), &out, &out)
			if status != c.status || !strings.Contains(out.String(), c.want) {
				t.Errorf("status %d, want %d; printed\n%swant\n%s", status, c.status, out.String(), c.want)
			}
		})
	}
}
