package e2e

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/testkit"
)

// TestUp_EphemeralLeavesNothing runs the verbs of a new user against an ephemeral system beside another
// one, and stops it.
func TestUp_EphemeralLeavesNothing(t *testing.T) {
	t.Parallel()
	start(t, "--robots", "1") // has ports of its own
	temp := shortTempDir(t)
	up := exec.Command(testkit.BinaryPath(t, "k8s4r"), "up", "--ephemeral", "--robots", "2")
	up.Env = append(os.Environ(), "TMPDIR="+temp)
	var out, log bytes.Buffer
	up.Stdout, up.Stderr = &out, &log
	up.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := up.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- up.Wait() }()
	t.Cleanup(func() { _ = up.Process.Kill() })
	state := awaitState(t, temp, ended, &log)

	t.Run("run prints only what the task writes", func(t *testing.T) {
		stdout, stderr, err := runVerb(t, state.Kubeconfig, "run", "--name", "hello", "--", "/bin/sh", "-c", "echo one; echo two >&2")
		if err != nil || stdout != "one\ntwo\n" && stdout != "two\none\n" || !strings.Contains(stderr, "job hello completed") {
			t.Errorf("%v, stdout %q, stderr %q", err, stdout, stderr)
		}
	})
	t.Run("get lists everything", func(t *testing.T) {
		stdout, stderr, err := runVerb(t, state.Kubeconfig, "get")
		for _, want := range []string{"job.robot.k8s4r.io/hello", "robot.robot.k8s4r.io/robot-2", "task.robot.k8s4r.io/hello-sh-0-main"} {
			if err != nil || !strings.Contains(stdout, want) {
				t.Errorf("%v, no %q in %q; stderr %q", err, want, stdout, stderr)
			}
		}
		for _, typ := range []string{"flows", "cronjobflows", "vcjobs", "rayclusters", "jobtemplates", "pods"} {
			if _, stderr, err := runVerb(t, state.Kubeconfig, "get", typ); err != nil || !strings.Contains(stderr, "no objects found") {
				t.Errorf("get %s: %v, %q", typ, err, stderr)
			}
		}
	})
	t.Run("top shows what the agents reported", func(t *testing.T) {
		stdout, stderr, err := runVerb(t, state.Kubeconfig, "top", "robots")
		if err != nil || !regexp.MustCompile(`(?m)^robot-1 +\d+m +\d+% +\d+Mi +\d+% +\S+ ago +0 `).MatchString(stdout) {
			t.Errorf("%v, %q, %q", err, stdout, stderr)
		}
	})
	t.Run("open prints a link that signs in", func(t *testing.T) {
		stdout, stderr, err := runVerb(t, state.Kubeconfig, "open", "--print")
		link := strings.TrimSpace(stdout)
		base, code, found := strings.Cut(link, "/signin?code=")
		if err != nil || !found || base != state.ConsoleURL {
			t.Fatalf("%v, %q, %q", err, stdout, stderr)
		}
		if status := signInWith(t, base, code); status != http.StatusOK {
			t.Errorf("the link does not sign in: status %d", status)
		}
		if status := signInWith(t, base, code); status != http.StatusUnauthorized {
			t.Errorf("the link signs in twice: status %d", status)
		}
	})

	if err := up.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("up ended with %v:\n%s", err, log.String())
		}
	case <-time.After(2 * time.Minute):
		t.Fatalf("up does not end:\n%s", log.String())
	}
	if !strings.Contains(out.String(), state.DataDir+" (removed when this process ends)") {
		t.Errorf("up printed %q", out.String())
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// shortTempDir returns a directory whose path leaves room for those of Unix sockets.
func shortTempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "e2e-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o711); err != nil { // tasks of other users pass through it
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !t.Failed() {
			os.RemoveAll(dir)
		}
	})
	return dir
}

type upState struct{ DataDir, Kubeconfig, ConsoleURL string }

// awaitState blocks until a system whose data directory is below dir is ready.
func awaitState(t *testing.T, dir string, ended <-chan error, log *bytes.Buffer) (state upState) {
	t.Helper()
	for until := time.Now().Add(5 * time.Minute); time.Now().Before(until); time.Sleep(50 * time.Millisecond) {
		select {
		case err := <-ended:
			t.Fatalf("up ended with %v:\n%s", err, log.String())
		default:
		}
		if files, _ := filepath.Glob(filepath.Join(dir, "*", "up.json")); len(files) == 1 {
			data, err := os.ReadFile(files[0])
			if err == nil && json.Unmarshal(data, &state) == nil {
				return state
			}
		}
	}
	t.Fatal("up is not ready after five minutes")
	return state
}

func runVerb(t *testing.T, kubeconfig string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	cmd := exec.Command(testkit.BinaryPath(t, "k8s4r"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	err = cmd.Run()
	return out.String(), log.String(), err
}

// signInWith signs in at a console with a code and returns the status of the answer.
func signInWith(t *testing.T, base, code string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+"/api/v1/session", strings.NewReader(`{"code":"`+code+`"}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Origin", base)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, answer.Body)
	return answer.StatusCode
}
