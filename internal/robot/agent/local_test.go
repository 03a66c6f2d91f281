package agent

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/agent/localapi"
	"k8s4r.io/k8s4r/internal/robot/agent/runner"
)

// localTasks returns the tasks that the agent of a state directory lists, by UID.
func localTasks(t *testing.T, dir string) map[string]runner.LiveTask {
	t.Helper()
	stdout, stderr, code := command(t, dir, "tasks", "-o", "json")
	if code != exitOK {
		t.Fatalf("tasks: exit status %d, %s", code, stderr)
	}
	var all localapi.Tasks
	must(t, json.Unmarshal([]byte(stdout), &all))
	byUID := map[string]runner.LiveTask{}
	for _, one := range all.Tasks {
		byUID[one.UID] = one
	}
	return byUID
}

func TestLocal_ShowsTasksAndLogsWithoutNetwork(t *testing.T) {
	s, dir := newFakeServer(t), t.TempDir()
	killTasksAtEnd(t, dir)
	agent := agentProcess(t, s, dir)
	must(t, agent.Start())
	s.awaitRegistered(1)
	s.dispatch(shell("t1", "echo out; echo err >&2; exec sleep 600"), 2)
	s.awaitRunning("t1", 2)
	s.dispatch(shell("t2", "exit 3", func(w *wire.Task) {
		w.Spec.RestartPolicy = &wire.RestartPolicy{Attempts: 1, Delay: wire.Duration(testTimeout)}
	}), 1)
	s.await("t2", 1, "the wait for the next run", func(r wire.Status) bool { return r.Reason == wire.ReasonRestarting })
	s.stop()

	all := localTasks(t, dir)
	if one := all["t1"]; one.State != runner.TaskRunning || one.Attempt != 2 || one.Run != 1 || one.Restarts != 0 || one.Since == nil || one.Job != "job" || one.NextRunAt != nil {
		t.Errorf("the running task is %+v", one)
	}
	if one := all["t2"]; one.State != runner.TaskRestarting || one.Run != 1 || one.NextRunAt == nil || one.Reason != "exit code 3" {
		t.Errorf("the waiting task is %+v", one)
	}
	page, _, _ := command(t, dir, "tasks")
	for _, want := range []string{"TASK", "NEXT RUN", "default/task-t1", "running", "restarting", "in 5", "exit code 3"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not contain %q:\n%s", want, page)
		}
	}

	waitUntil(t, "the log", func() bool {
		stdout, stderr, code := command(t, dir, "logs", "task-t1")
		return code == exitOK && stderr == "" && (stdout == "out\nerr\n" || stdout == "err\nout\n")
	})
	if stdout, _, code := command(t, dir, "logs", "default/task-t1", "--stderr"); code != exitOK || stdout != "err\n" {
		t.Errorf("standard error: exit status %d, %q", code, stdout)
	}
	if _, stderr, code := command(t, dir, "logs", "task-t3"); code != exitFailed || !strings.Contains(stderr, `task "task-t3" is not on this robot`) {
		t.Errorf("another task: exit status %d, %q", code, stderr)
	}
	if _, stderr, code := command(t, dir, "logs"); code != exitUsage || !strings.Contains(stderr, "the name of one task is required") {
		t.Errorf("no task: exit status %d, %q", code, stderr)
	}
}

// The socket protects itself also where its directory does not.
func TestLocal_SocketIsPrivate(t *testing.T) {
	s, dir := newFakeServer(t), t.TempDir()
	agent := agentProcess(t, s, dir, "--local-group", "k8s4r-no-such-group")
	must(t, agent.Start())
	s.awaitRegistered(1)
	info, err := os.Stat(filepath.Join(dir, localSocketName))
	must(t, err)
	if info.Mode() != os.ModeSocket|0o600 {
		t.Errorf("the mode of the socket is %v", info.Mode())
	}
}
