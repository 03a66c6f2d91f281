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
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	must(t, err)
	defer log.Close()
	agent.Stderr = log
	must(t, agent.Start())
	s.awaitRegistered(1)
	if text, err := os.ReadFile(log.Name()); err != nil || !strings.Contains(string(text), "no such localGroup") || !strings.Contains(string(text), "group=k8s4r-no-such-group") {
		t.Errorf("the agent logs %q, %v", text, err)
	}
	info, err := os.Stat(filepath.Join(dir, localSocketName))
	must(t, err)
	if info.Mode() != os.ModeSocket|0o600 {
		t.Errorf("the mode of the socket is %v", info.Mode())
	}
}

// lastLocal returns what people at the robot have decided as of the last registration.
func (s *fakeServer) lastLocal() wire.LocalState {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.registers); n > 0 && s.registers[n-1].Local != nil {
		return *s.registers[n-1].Local
	}
	return wire.LocalState{}
}

// mustCommand runs a subcommand that must succeed.
func mustCommand(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	stdout, stderr, code := command(t, dir, name, args...)
	if code != exitOK {
		t.Fatalf("%s %v: exit status %d, %s", name, args, code, stderr)
	}
	return stdout
}

func TestLocal_StopsTaskUntilItIsRestarted(t *testing.T) {
	s, dir := newFakeServer(t), t.TempDir()
	killTasksAtEnd(t, dir)
	agent := agentProcess(t, s, dir)
	must(t, agent.Start())
	s.awaitRegistered(1)
	s.dispatch(shell("t1", "exec sleep 600"), 1)
	s.awaitRunning("t1", 1)
	person := localapi.Peer{UID: uint32(os.Geteuid())}.String()

	mustCommand(t, dir, "stop", "task-t1")
	if end := s.awaitEnd("t1", 1); end.Reason != wire.ReasonStoppedAtRobot || !strings.Contains(end.Message, "stopped at the robot by "+person) {
		t.Errorf("the end is %+v", end)
	}
	waitUntil(t, "the registration of the stop", func() bool {
		stopped := s.lastLocal().StoppedTasks
		return len(stopped) == 1 && stopped[0].UID == "t1" && stopped[0].Name == "task-t1" && stopped[0].By == person
	})
	if out := mustCommand(t, dir, "stop", "task-t1"); out != "default/task-t1: already stopped\n" {
		t.Errorf("the second stop: %q", out)
	}

	must(t, agent.Process.Kill())
	_ = agent.Wait()
	agent = agentProcess(t, s, dir)
	must(t, agent.Start())
	waitUntil(t, "the end of another attempt", func() bool {
		s.dispatch(shell("t1", "exec sleep 600"), 2) // the first one was sent before the agent had connected
		return len(s.reportsAbout("t1", 2)) > 0
	})
	if end := s.awaitEnd("t1", 2); end.Reason != wire.ReasonStoppedAtRobot || end.Run != 0 {
		t.Errorf("the end of attempt 2 is %+v", end)
	}
	if one := localTasks(t, dir)["t1"]; one.State != runner.TaskStopped || one.Since == nil || one.Reason != "StoppedAtRobot by "+person {
		t.Errorf("the stopped task is %+v", one)
	}
	if out, _, code := command(t, dir, "logs", "task-t1"); code != exitOK {
		t.Errorf("its log: exit status %d, %q", code, out)
	}
	mustCommand(t, dir, "restart", "task-t1")
	waitUntil(t, "the registration of the restart", func() bool { return len(s.lastLocal().StoppedTasks) == 0 })
	s.dispatch(shell("t1", "exec sleep 600"), 3)
	s.awaitRunning("t1", 3)
	mustCommand(t, dir, "restart", "task-t1")
	s.await("t1", 3, "the second run", func(r wire.Status) bool {
		return r.State == wire.ReportRunning && r.Run == 2 && r.Reason == "" && r.Runs[0].Reason == wire.ReasonRestartedAtRobot
	})
}

func TestLocal_MaintenanceIsUnlockedByMessage(t *testing.T) {
	s, dir := newFakeServer(t), t.TempDir()
	agent := agentProcess(t, s, dir)
	must(t, agent.Start())
	s.awaitRegistered(1)
	mustCommand(t, dir, "maintenance", "on", "--reason", "a broken arm")
	waitUntil(t, "the registration of the maintenance", func() bool { return s.lastLocal().Maintenance != nil })
	m := s.lastLocal().Maintenance
	if m.ID == "" || m.Reason != "a broken arm" || !strings.Contains(m.By, "(uid ") || m.Since.IsZero() {
		t.Errorf("the maintenance is %+v", m)
	}
	if page := mustCommand(t, dir, "tasks"); !strings.Contains(page, "Maintenance since ") || !strings.Contains(page, "a broken arm") {
		t.Errorf("tasks prints %q", page)
	}
	if page := mustCommand(t, dir, "status"); !strings.Contains(page, "Maintenance since ") || !strings.Contains(page, "a broken arm") {
		t.Errorf("status prints %q", page)
	}
	s.dispatch(shell("t1", "exit 0"), 1)
	if end := s.awaitEnd("t1", 1); end.Reason != wire.ReasonMaintenance || !strings.Contains(end.Message, "a broken arm") {
		t.Errorf("the end is %+v", end)
	}
	if _, stderr, code := command(t, dir, "maintenance", "on", "--reason", "again"); code != exitFailed || !strings.Contains(stderr, "in maintenance already") {
		t.Errorf("the second maintenance: exit status %d, %q", code, stderr)
	}
	s.publish(wire.KindResponse, wire.Response{Success: true, RobotID: robot, UnlockMaintenance: m.ID}, false)
	waitUntil(t, "the registration of its end", func() bool { return s.lastLocal().Maintenance == nil })
	s.dispatch(shell("t1", "exit 0"), 2)
	s.await("t1", 2, "its completion", func(r wire.Status) bool { return r.State == wire.ReportCompleted })
}

func TestLocal_HeldTaskIsNotInterrupted(t *testing.T) {
	s, dir := newFakeServer(t), t.TempDir()
	killTasksAtEnd(t, dir)
	agent := agentProcess(t, s, dir)
	must(t, agent.Start())
	s.awaitRegistered(1)
	if !s.registers[0].RefusesInterruptions {
		t.Error("the agent does not register that it refuses interruptions")
	}
	s.dispatch(shell("t1", "exec sleep 600"), 1)
	s.awaitRunning("t1", 1)
	interrupt := func() {
		s.publish(wire.KindDispatch, wire.Dispatch{Action: wire.ActionDelete, Task: shell("t1", "exec sleep 600"), Attempt: 1, Interruption: &wire.Interruption{}}, false)
	}
	if out := mustCommand(t, dir, "hold", "task-t1", "--reason", "a scan"); !strings.HasPrefix(out, "default/task-t1: held: ") {
		t.Errorf("hold prints %q", out)
	}
	mustCommand(t, dir, "hold", "--reason", "a visit")
	waitUntil(t, "the registration of the holds", func() bool { return len(s.lastLocal().Holds) == 2 })
	if h := s.lastLocal().Holds[0]; h.ID == "" || h.UID != "t1" || h.Namespace != "default" || h.Name != "task-t1" || h.Reason != "a scan" || !strings.Contains(h.By, "(uid ") || h.Since.IsZero() {
		t.Errorf("the hold is %+v", h)
	}
	for _, name := range []string{"tasks", "status"} {
		if page := mustCommand(t, dir, name); !strings.Contains(page, "default/task-t1, since ") || !strings.Contains(page, "the robot, since ") || !strings.Contains(page, ": a visit") {
			t.Errorf("%s prints %q", name, page)
		}
	}
	if _, stderr, code := command(t, dir, "hold", "--reason", "again"); code != exitFailed || !strings.Contains(stderr, "held already, by ") {
		t.Errorf("the second hold: exit status %d, %q", code, stderr)
	}

	must(t, agent.Process.Kill())
	_ = agent.Wait()
	agent = agentProcess(t, s, dir)
	must(t, agent.Start())
	refused := 0
	waitUntil(t, "the refusal", func() bool {
		interrupt() // the first one was sent before the agent had connected
		for _, r := range s.reportsAbout("t1", 1) {
			if r.Refused == wire.RefusedHeld && !r.IsTerminal() {
				refused++
			}
		}
		return refused > 0
	})
	mustCommand(t, dir, "release", "--all")
	waitUntil(t, "the registration of the release", func() bool { return len(s.lastLocal().Holds) == 0 })
	interrupt()
	if end := s.awaitEnd("t1", 1); end.Reason != wire.ReasonStopped || end.Refused != "" {
		t.Errorf("the end is %+v", end)
	}
}

func TestLocal_RejectsInvalidCommands(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"stop"}, "the name of one task is required"},
		{[]string{"restart", "a", "b"}, "the name of one task is required"},
		{[]string{"maintenance"}, "on or off is required"},
		{[]string{"maintenance", "soon"}, "on or off is required"},
		{[]string{"maintenance", "on"}, "--reason is required"},
		{[]string{"hold"}, "--reason is required"},
		{[]string{"hold", "a", "b", "--reason", "x"}, "at most one task can be named"},
		{[]string{"release", "a", "b"}, "at most one task can be named"},
		{[]string{"release", "a", "--all"}, "name a task, or use --all"},
		{[]string{"tasks", "a"}, `unexpected argument "a"`},
		{[]string{"tasks", "-o", "yaml"}, `-o "yaml" must be text or json`},
	} {
		if _, stderr, code := command(t, dir, c.args[0], c.args[1:]...); code != exitUsage || !strings.Contains(stderr, c.want) {
			t.Errorf("%v: exit status %d, %q, want %q", c.args, code, stderr, c.want)
		}
	}
}
