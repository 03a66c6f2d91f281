package e2e

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/robot/isolation"
	"k8s4r.io/k8s4r/internal/testkit"
)

// TestCLI_RunReportsTheOutcome runs commands as a script would.
func TestCLI_RunReportsTheOutcome(t *testing.T) {
	t.Parallel()
	s := start(t, "--robots", "2")
	for _, row := range []struct {
		name     string
		args     []string
		wantExit int
		want     string
	}{
		{"a command that succeeds on two robots",
			[]string{"run", "--name", "good", "--count", "2", "--", "/bin/sh", "-c", "exit 0"}, 0, `2/2 completed, 0 running, 0 failed`},
		{"a command that fails: which task, where and how",
			[]string{"run", "--name", "bad", "--", "/bin/sh", "-c", "exit 7"}, 1, `(?s)bad-sh-0-\S+.*robot-\d.*7.*Task exited with code 7`},
		{"a command that does not exist",
			[]string{"run", "--name", "nowhere", "--", "no-such-command"}, 1, `StartFailed`},
		{"a command that takes longer than it may",
			[]string{"run", "--name", "slow", "--timeout", "300ms", "--", "sleep", "60"}, 1, `Task terminated: Task timeout`},
		{"no command at all", []string{"run"}, 2, `COMMAND|command`},
		{"a count of nothing", []string{"run", "--count", "0", "--", "true"}, 2, `--count`},
		{"a tree of what became of it", []string{"get", "job", "good"}, 0, `(?s)good.*good-sh-0.*robot-\d.*completed`},
		{"a unique prefix stands for the name", []string{"get", "job", "goo"}, 0, `good`},
		{"the state of everything on a page", []string{"status"}, 0, `(?i)(?s)robots.*2.*online`},
		{"a job that is to go away", []string{"delete", "job", "good"}, 0, `good`},
	} {
		t.Run(row.name, func(t *testing.T) {
			out, err := s.RunProgram("k8s4r", row.args...)
			if got := exitCode(err); got != row.wantExit || !regexp.MustCompile(row.want).MatchString(out) {
				t.Errorf("exit status %d, want %d with %q:\n%s", got, row.wantExit, row.want, out)
			}
		})
	}
	t.Run("a command that names no user is not root", func(t *testing.T) {
		want, err := isolation.DefaultUser()
		if err != nil {
			t.Fatal(err)
		}
		if want == "" { // the test is not root, and robots of up are who it is
			want = me()
		}
		for _, driver := range []string{"exec", "raw_exec"} {
			if out, err := s.RunProgram("k8s4r", "run", "--driver", driver, "--", "/bin/sh", "-c", `test "$(id -un)" = `+want+` && echo x > "$HOME/mine"`); err != nil {
				t.Errorf("%s: %v\n%s", driver, err, out)
			}
		}
		if out, err := s.kubectl("get", "robot", "robot-1", "-o", "jsonpath={.status.deviceInfo.taskUser}"); err != nil || out != want {
			t.Errorf("the robot says %q, %v", out, err)
		}
	})
	t.Run("the lean program is a plugin of kubectl", func(t *testing.T) {
		cmd := exec.Command(testkit.BinaryPath(t, "k8s4r"), "kubectl", "k8s4r", "get", "robots")
		cmd.Env = append(os.Environ(), "KUBECONFIG="+s.Kubeconfig, "PATH="+filepath.Dir(testkit.BinaryPath(t, "kubectl-k8s4r"))+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "robot-2") {
			t.Errorf("%v:\n%s", err, out)
		}
	})
}

func exitCode(err error) int {
	if err == nil {
		return 0
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode()
	}
	return -1
}

// TestUp_UsesAnExternalClusterAndBroker runs manager, server and robots here,
// against an API server and a broker that run elsewhere.
func TestUp_UsesAnExternalClusterAndBroker(t *testing.T) {
	t.Parallel()
	cluster := start(t, "--without", "manager,server,broker,robots,node,console")
	s := start(t, "--kubeconfig", cluster.Kubeconfig, "--mqtt-url", mosquitto(t), "--allow-anonymous-agents", "--robots", "1")
	s.create(jobOf("there", 2, shell("say", "echo hi")))
	cluster.awaitJob("there", "completed", 30*time.Second)
}
