package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/logs/record"
	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/agent/journal"
	"k8s4r.io/k8s4r/internal/robot/agent/runner"
)

func TestAgent_RunsATask(t *testing.T) {
	s, dir := newFakeServer(t), t.TempDir()
	a := startAgent(t, s.config(dir))
	s.awaitRegistered(1)
	s.dispatch(shell("t1", `echo "hello from $K8S4R_TASK on $K8S4R_ROBOT"; echo oops >&2`), 1)

	end := s.awaitEnd("t1", 1)
	if end.State != wire.ReportCompleted || end.ExitCode != 0 || end.RobotName != robot {
		t.Errorf("end = %+v, want completed with 0 by %s", end, robot)
	}
	if end.StartedAt == nil || end.FinishedAt == nil || end.FinishedAt.Before(*end.StartedAt) {
		t.Errorf("end has times %v and %v, want both in order", end.StartedAt, end.FinishedAt)
	}
	for stream, want := range map[record.Stream]string{record.Stdout: "hello from main on r1\n", record.Stderr: "oops\n"} {
		if out := output(t, dir, "t1", 1, stream); out != want {
			t.Errorf("%s = %q, want %q", stream, out, want)
		}
	}
	waitUntil(t, "the journal to know of the ack", func() bool {
		e, _ := a.journal.Get("t1", 1)
		return e.IsAcked()
	})
	reports := s.distinctReports("t1", 1)
	if n := len(reports); n > 3 {
		t.Errorf("%d reports, want pending, running and completed at the most: %+v", n, reports)
	}
	if !slices.IsSortedFunc(reports, func(a, b wire.Status) int { return int(a.Seq) - int(b.Seq) }) {
		t.Errorf("reports out of sequence: %+v", reports)
	}
}

func TestAgent_NeedsNoGoroutinePerTask(t *testing.T) {
	many := 100
	if testing.Short() {
		many = 20 // more than the ten that may come and go
	}
	s, dir := newFakeServer(t), t.TempDir()
	a := startAgent(t, s.config(dir))
	s.awaitRegistered(1)
	fifo := filepath.Join(t.TempDir(), "gate")
	must(t, syscall.Mkfifo(fifo, 0o600))
	task := func(i int) wire.Task { return shell(fmt.Sprintf("t%d", i), "read line < "+fifo) }

	most := runtime.NumGoroutine() + 10 // some handle messages, and end soon
	for i := range many {
		s.dispatch(task(i), 1)
	}
	for i := range many {
		s.awaitRunning(fmt.Sprintf("t%d", i), 1)
	}
	awaitGoroutines(t, most, "while all tasks run")

	gate, err := os.OpenFile(fifo, os.O_RDWR, 0)
	must(t, err)
	defer gate.Close()
	_, err = gate.WriteString(strings.Repeat("go\n", many))
	must(t, err)
	for i := range many {
		uid := fmt.Sprintf("t%d", i)
		if end := s.awaitEnd(uid, 1); end.State != wire.ReportCompleted {
			t.Errorf("%s: %+v", uid, end)
		}
	}
	awaitGoroutines(t, most, "after all tasks")
	a.stop()
	if n := a.runner.CountAttempts(); n != 0 {
		t.Errorf("%d tasks are still known", n)
	}
}

// awaitGoroutines waits until there are at most this many goroutines.
func awaitGoroutines(t *testing.T, most int, when string) {
	t.Helper()
	waitUntil(t, fmt.Sprintf("at most %d goroutines %s", most, when), func() bool { return runtime.NumGoroutine() <= most })
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name       string
		script     string
		kill       string // empty: not given
		wantKill   time.Duration
		wantCode   int32
		wantSignal int32
		notBefore  time.Duration
	}{
		{name: "a task that ends on SIGTERM: 143 and signal 15",
			script: "sleep 600", wantKill: wire.DefaultKillTimeout, wantCode: 143, wantSignal: 15, notBefore: time.Second},
		{name: "a task that ignores SIGTERM, with its children: SIGKILL after killTimeout, 137 and signal 9",
			script: "trap '' TERM; sleep 600 & sleep 600", kill: "200ms", wantKill: 200 * time.Millisecond, wantCode: 137, wantSignal: 9, notBefore: 1200 * time.Millisecond},
		{name: "a task that ignores SIGTERM, with no time to end: SIGKILL at once, 137 and signal 9",
			script: "trap '' TERM; sleep 600 & sleep 600", kill: "0s", wantCode: 137, wantSignal: 9, notBefore: time.Second},
		{name: "a task that exits 0 on SIGTERM: 143, and no signal",
			script: "trap 'exit 0' TERM; sleep 600 & wait", wantKill: wire.DefaultKillTimeout, wantCode: 143, wantSignal: 0, notBefore: time.Second},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s, dir := newFakeServer(t), t.TempDir()
			shims := &recordedShims{}
			startAgent(t, s.config(dir), recordShims(shims))
			s.awaitRegistered(1)
			s.dispatch(shell("t1", test.script, func(w *wire.Task) {
				w.Spec.Timeout, w.Spec.KillTimeout = wire.Duration(time.Second), killAfter(t, test.kill)
			}), 1)
			end := s.awaitEnd("t1", 1)
			if end.State != wire.ReportFailed || end.Reason != wire.ReasonTimeout || end.Message != "Task terminated: Task timeout" {
				t.Errorf("end = %+v, want failed for Timeout", end)
			}
			if end.ExitCode != test.wantCode || end.Signal != test.wantSignal {
				t.Errorf("exit code %d and signal %d, want %d and %d", end.ExitCode, end.Signal, test.wantCode, test.wantSignal)
			}
			if took := end.FinishedAt.Sub(*end.StartedAt); took < test.notBefore {
				t.Errorf("ended after %v, want not before %v", took, test.notBefore)
			}
			// The shim keeps the time. A busy machine may be late, so this checks its orders.
			if spec := shims.started()[0]; spec.Timeout != time.Second || spec.KillTimeout != test.wantKill {
				t.Errorf("the shim was given timeout %v and killTimeout %v, want 1s and %v", spec.Timeout, spec.KillTimeout, test.wantKill)
			}
		})
	}
}

// killAfter parses a killTimeout. It returns nil for an empty text.
func killAfter(t *testing.T, text string) *wire.Duration {
	if text == "" {
		return nil
	}
	d, err := time.ParseDuration(text)
	must(t, err)
	return new(wire.Duration(d))
}

func TestAgent_ReportsHowTasksEnd(t *testing.T) {
	tests := []struct {
		name string
		task wire.Task
		want wire.Status
	}{
		{name: "exit code 3: failed, Exited",
			task: shell("t1", "exit 3"), want: wire.Status{State: wire.ReportFailed, ExitCode: 3, Reason: wire.ReasonExited, Message: "Task exited with code 3"}},
		{name: "killed by a signal: failed, Signaled",
			task: shell("t1", "kill -9 $$"), want: wire.Status{State: wire.ReportFailed, ExitCode: 137, Signal: 9, Reason: wire.ReasonSignaled, Message: "Task was killed by signal 9 (killed)"}},
		{name: "a command that is not there: failed, StartFailed, -1",
			task: shell("t1", "", func(w *wire.Task) { w.Spec.Config.Exec.Command = "no-such-thing" }),
			want: wire.Status{State: wire.ReportFailed, ExitCode: -1, Reason: wire.ReasonStartFailed, Message: `command "no-such-thing" not found on PATH /usr/local/bin:/usr/bin:/bin`}},
		{name: "a driver that is not there: failed, Rejected, -1",
			task: shell("t1", "", func(w *wire.Task) { w.Spec.Driver = "podman" }),
			want: wire.Status{State: wire.ReportFailed, ExitCode: -1, Reason: wire.ReasonRejected, Message: `driver "podman": this robot has no such driver`}},
		{name: "no config: failed, Rejected, -1",
			task: shell("t1", "", func(w *wire.Task) { w.Spec.Config = wire.TaskConfig{} }),
			want: wire.Status{State: wire.ReportFailed, ExitCode: -1, Reason: wire.ReasonRejected, Message: "config.execConfig is missing"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := newFakeServer(t)
			startAgent(t, s.config(t.TempDir()))
			s.awaitRegistered(1)
			s.dispatch(test.task, 1)
			end := s.awaitEnd("t1", 1)
			got := wire.Status{State: end.State, ExitCode: end.ExitCode, Signal: end.Signal, Reason: end.Reason, Message: end.Message}
			if !reflect.DeepEqual(got, test.want) {
				t.Errorf("end = %+v, want %+v", got, test.want)
			}
		})
	}
}

func TestAgent_TaskEnvironment(t *testing.T) {
	t.Setenv("K8S4R_AGENT_TOKEN", "secret")
	t.Setenv("LD_PRELOAD", "")
	s, dir := newFakeServer(t), t.TempDir()
	startAgent(t, s.config(dir))
	s.awaitRegistered(1)
	s.dispatch(shell("t1", "env | sort", func(w *wire.Task) {
		w.Metadata.Labels = map[string]string{wire.LabelTaskIndex: "4"}
		w.Spec.Env = map[string]string{"HOME": "/elsewhere", "GREETING": "hello", "K8S4R_TASK_DIR": "/hidden"}
	}), 7)
	s.awaitEnd("t1", 7)
	var got []string
	for line := range strings.Lines(output(t, dir, "t1", 7, record.Stdout)) {
		// The shell sets these itself.
		if name, _, _ := strings.Cut(line, "="); name != "PWD" && name != "OLDPWD" && name != "SHLVL" && name != "_" {
			got = append(got, strings.TrimSpace(line))
		}
	}
	want := []string{
		"GREETING=hello", "HOME=/elsewhere", "K8S4R_ATTEMPT=7", "K8S4R_JOB=job", "K8S4R_ROBOT=r1", "K8S4R_RUN=1", "K8S4R_TASK=main",
		"K8S4R_TASK_DIR=" + runner.StateDir(dir).WorkDir("t1", 7), "K8S4R_TASK_GROUP=group", "K8S4R_TASK_INDEX=4", "K8S4R_TASK_UID=t1",
		"PATH=/usr/local/bin:/usr/bin:/bin",
	}
	if !slices.Equal(got, want) {
		t.Errorf("environment\n%q, want\n%q", got, want)
	}
}

func TestDispatch_RepeatedRunsOnce(t *testing.T) {
	s, dir := newFakeServer(t), t.TempDir()
	a := startAgent(t, s.config(dir))
	s.awaitRegistered(1)
	trace := filepath.Join(t.TempDir(), "runs")
	task := shell("t1", "echo run >> "+trace)
	for range 5 {
		s.dispatch(task, 2)
	}
	first := s.awaitEnd("t1", 2)
	waitUntil(t, "the acknowledgment", func() bool { return a.outbox.PendingCount() == 0 })
	n := len(s.reportsAbout("t1", 2))
	s.dispatch(task, 2)
	waitUntil(t, "the end to be reported again", func() bool { return len(s.reportsAbout("t1", 2)) > n })
	if again := s.reportsAbout("t1", 2)[n]; !reflect.DeepEqual(again, first) {
		t.Errorf("reported again as %+v, want %+v", again, first)
	}

	s.dispatch(task, 1) // an attempt that was never seen, come late
	old := s.awaitEnd("t1", 1)
	if old.State != wire.ReportFailed || old.Reason != wire.ReasonSuperseded || old.StartedAt != nil {
		t.Errorf("the older attempt is answered with %+v, want failed, Superseded", old)
	}
	a.stop()
	startAgent(t, s.config(dir)) // and after a restart
	n = len(s.reportsAbout("t1", 2))
	s.awaitRegistered(2)
	s.dispatch(task, 2)
	waitUntil(t, "the end to be reported by the new agent", func() bool { return len(s.reportsAbout("t1", 2)) > n })
	n = len(s.reportsAbout("t1", 1))
	s.dispatch(task, 1)
	waitUntil(t, "the older attempt to be answered again", func() bool { return len(s.reportsAbout("t1", 1)) > n })
	if runs := lines(trace); len(runs) != 1 {
		t.Errorf("%d runs, want 1", len(runs))
	}
	for _, r := range s.reportsAbout("t1", 1) {
		if !reflect.DeepEqual(r, old) {
			t.Errorf("the older attempt is answered with %+v, then with %+v", old, r)
		}
	}
}

// The agent cannot distinguish a late duplicate from a cluster that was restored from a backup.
func TestDispatch_OlderAttemptIsReportedSuperseded(t *testing.T) {
	s, dir := newFakeServer(t), t.TempDir()
	startAgent(t, s.config(dir))
	s.awaitRegistered(1)
	s.dispatch(shell("t1", "exit 3"), 2)
	end := s.awaitEnd("t1", 2)
	s.dispatch(shell("t1", "sleep 600"), 3)
	s.awaitRunning("t1", 3)
	n := len(s.reportsAbout("t1", 2))
	s.dispatch(shell("t1", "exit 0"), 2)
	s.dispatch(shell("t1", "exit 0"), 1)
	waitUntil(t, "the end of attempt 2 to be repeated", func() bool { return len(s.reportsAbout("t1", 2)) > n })
	if again := s.reportsAbout("t1", 2)[n]; !reflect.DeepEqual(again, end) {
		t.Errorf("attempt 2 is answered with %+v, want %+v", again, end)
	}
	if old := s.awaitEnd("t1", 1); old.Reason != wire.ReasonSuperseded || old.State != wire.ReportFailed {
		t.Errorf("attempt 1 is answered with %+v, want failed, Superseded", old)
	}
	s.remove("t1", 3)
	if last := s.awaitEnd("t1", 3); last.Reason != wire.ReasonStopped {
		t.Errorf("attempt 3 did not run on: %+v", last)
	}
}

func TestDispatch_LostJournalRunsNothingTwice(t *testing.T) {
	s, dir := newFakeServer(t), t.TempDir()
	a := startAgent(t, s.config(dir))
	s.awaitRegistered(1)
	trace := filepath.Join(t.TempDir(), "runs")
	task := func(uid string) wire.Task { return shell(uid, "echo "+uid+" >> "+trace) }
	started := func(uid string) {
		s.publish(wire.KindDispatch, wire.Dispatch{Action: wire.ActionCreate, Task: task(uid), Attempt: 4, Epoch: 9, Started: true}, false)
	}
	s.publish(wire.KindState, wire.TaskList{Tasks: []wire.Task{}, Epoch: 9, Refs: []wire.TaskReference{
		{UID: "listed", Attempt: 4, Started: true}, {UID: "announced", Attempt: 4}, {UID: "../nonsense", Attempt: 1, Started: true},
	}}, true)
	started("dispatched")
	for _, uid := range []string{"listed", "dispatched"} {
		if end := s.awaitEnd(uid, 4); end.State != wire.ReportFailed || end.Reason != wire.ReasonAgentRestarted {
			t.Errorf("%s is answered with %+v, want failed, AgentRestarted", uid, end)
		}
	}
	s.dispatch(task("announced"), 4)
	if end := s.awaitEnd("announced", 4); end.State != wire.ReportCompleted {
		t.Errorf("a task whose list came before its dispatch ended as %+v", end)
	}
	a.stop()
	startAgent(t, s.config(dir))
	s.awaitRegistered(2)
	n := len(s.reportsAbout("listed", 4))
	s.dispatch(task("listed"), 4)
	waitUntil(t, "the answer to be repeated", func() bool { return len(s.reportsAbout("listed", 4)) > n })
	started("announced") // attempts in the journal are answered as before
	s.dispatch(task("next"), 1)
	s.awaitEnd("next", 1)
	if end := s.awaitEnd("announced", 4); end.State != wire.ReportCompleted {
		t.Errorf("what the journal knows is answered with %+v", end)
	}
	if runs := lines(trace); !slices.Equal(runs, []string{"announced", "next"}) {
		t.Errorf("ran %v, want only announced and next", runs)
	}
}

func TestDispatch_NewerAttemptWaitsForTheOlder(t *testing.T) {
	s, dir := newFakeServer(t), t.TempDir()
	startAgent(t, s.config(dir))
	s.awaitRegistered(1)
	trace := filepath.Join(t.TempDir(), "trace")
	// It ends 0.2 s after SIGTERM, and writes when it does.
	s.dispatch(shell("t1", fmt.Sprintf(`trap 'sleep 0.2; echo end1 >> %[1]s; exit 0' TERM; echo start1 >> %[1]s; sleep 600 & wait`, trace)), 1)
	s.awaitRunning("t1", 1)
	waitUntil(t, "attempt 1 to write", func() bool { return len(lines(trace)) == 1 })
	s.dispatch(shell("t1", "echo start2 >> "+trace), 2)
	if end := s.awaitEnd("t1", 1); end.Reason != wire.ReasonSuperseded || end.State != wire.ReportFailed {
		t.Errorf("attempt 1 ended as %+v, want failed, Superseded", end)
	}
	if end := s.awaitEnd("t1", 2); end.State != wire.ReportCompleted {
		t.Errorf("attempt 2 ended as %+v, want completed", end)
	}
	if got := lines(trace); !slices.Equal(got, []string{"start1", "end1", "start2"}) {
		t.Errorf("trace %v", got)
	}
}

func TestDelete(t *testing.T) {
	s, dir := newFakeServer(t), t.TempDir()
	a := startAgent(t, s.config(dir))
	s.awaitRegistered(1)
	s.dispatch(shell("t1", "trap 'exit 4' TERM; echo up; sleep 600 & wait"), 2)
	s.awaitRunning("t1", 2)
	waitUntil(t, "the trap to be set", func() bool { return output(t, dir, "t1", 2, record.Stdout) != "" })

	s.remove("nobody", 1)
	if end := s.awaitEnd("nobody", 1); end.Reason != wire.ReasonStopped {
		t.Errorf("a delete that came before its dispatch is answered with %+v, want Stopped", end)
	}
	s.dispatch(shell("nobody", "echo ran"), 1)
	s.remove("t1", 1)
	waitUntil(t, "the delete of an older attempt to be refused", func() bool { return a.problems.totalCount() == 1 })
	s.remove("t1", 2)
	end := s.awaitEnd("t1", 2)
	if end.State != wire.ReportFailed || end.Reason != wire.ReasonStopped || end.ExitCode != 4 || end.Signal != 0 {
		t.Errorf("end = %+v, want failed, Stopped, exit code 4", end)
	}
	n := len(s.reportsAbout("t1", 2))
	s.remove("t1", 2)
	waitUntil(t, "a second delete to be answered with the end", func() bool { return len(s.reportsAbout("t1", 2)) > n })
	s.dispatch(shell("t1", "exit 0"), 2)
	waitUntil(t, "a late dispatch to be answered with the end", func() bool { return len(s.reportsAbout("t1", 2)) > n+1 })
	for _, r := range s.reportsAbout("t1", 2)[n:] {
		if !reflect.DeepEqual(r, end) {
			t.Errorf("answered with %+v, want %+v", r, end)
		}
	}
	if _, err := os.Stat(runner.StateDir(dir).WorkDir("nobody", 1)); err == nil {
		t.Error("a dispatch that came after its delete was run")
	}
}

func TestTaskList(t *testing.T) {
	s, dir := newFakeServer(t), t.TempDir()
	startAgent(t, s.config(dir))
	s.awaitRegistered(1)
	epochs := map[string]uint64{}
	for _, uid := range []string{"old", "named", "wrong-attempt", "new"} {
		epochs[uid] = s.dispatch(shell(uid, "sleep 600"), 2)
		s.awaitRunning(uid, 2)
	}
	list := func(epoch uint64, refs ...wire.TaskReference) {
		s.publish(wire.KindState, wire.TaskList{Tasks: []wire.Task{}, Refs: refs, Epoch: epoch}, true)
	}
	list(0) // for a legacy agent
	list(epochs["wrong-attempt"], wire.TaskReference{UID: "named", Attempt: 2}, wire.TaskReference{UID: "wrong-attempt", Attempt: 1}, wire.TaskReference{UID: "unknown", Attempt: 1})
	for _, uid := range []string{"old", "wrong-attempt"} {
		if end := s.awaitEnd(uid, 2); end.Reason != wire.ReasonStopped {
			t.Errorf("%s ended as %+v, want Stopped", uid, end)
		}
	}
	list(epochs["named"]) // overtaken by the one before
	s.dispatch(shell("after", "exit 0"), 1)
	s.awaitEnd("after", 1)
	for _, uid := range []string{"named", "new", "unknown"} {
		for _, r := range s.reportsAbout(uid, 2) {
			if r.IsTerminal() {
				t.Errorf("%s ended as %+v", uid, r)
			}
		}
	}
	list(s.dispatch(shell("last", "sleep 600"), 1))
	for _, uid := range []string{"named", "new"} {
		s.awaitEnd(uid, 2)
	}
	s.awaitEnd("last", 1)
	if got := s.reportsAbout("unknown", 1); len(got) != 0 {
		t.Errorf("a task that was only listed was run: %+v", got)
	}
}

// Resource versions of a recreated cluster start again, so epochs compare only for one Robot UID.
func TestTaskList_OfRecreatedCluster(t *testing.T) {
	s, dir := newFakeServer(t), t.TempDir()
	startAgent(t, s.config(dir))
	s.awaitRegistered(1)
	dispatch := func(uid, era string, epoch uint64) {
		s.publish(wire.KindDispatch, wire.Dispatch{Action: wire.ActionCreate, Task: shell(uid, "sleep 600"), Attempt: 1, Epoch: epoch, RobotUID: era}, false)
		s.awaitRunning(uid, 1)
	}
	list := func(era string, epoch uint64, refs ...wire.TaskReference) {
		s.publish(wire.KindState, wire.TaskList{Tasks: []wire.Task{}, Refs: refs, Epoch: epoch, RobotUID: era}, true)
	}
	dispatch("before", "old", 1_000_000)
	list("old", 1_000_001, wire.TaskReference{UID: "before", Attempt: 1})
	list("new", 3)
	if end := s.awaitEnd("before", 1); end.Reason != wire.ReasonStopped {
		t.Errorf("end = %+v, want Stopped", end)
	}
	dispatch("gone", "new", 4)
	dispatch("late", "new", 6)
	list("new", 5)
	s.awaitEnd("gone", 1)
	for _, r := range s.reportsAbout("late", 1) {
		if r.IsTerminal() {
			t.Errorf("a list that is older than the dispatch ended it: %+v", r)
		}
	}
}

func TestReports_RepeatedUntilAcknowledged(t *testing.T) {
	s, dir := newFakeServer(t), t.TempDir()
	s.setFields(func() { s.ignoreReports = true })
	a := startAgent(t, s.config(dir))
	s.awaitRegistered(1)
	s.dispatch(shell("t1", "exit 0"), 1)
	end := s.awaitEnd("t1", 1)
	ends := func() (n int) {
		for _, r := range s.reportsAbout("t1", 1) {
			if r.IsTerminal() {
				n++
			}
		}
		return n
	}
	n := ends()
	s.publish(wire.KindState, wire.TaskList{Tasks: []wire.Task{}, Epoch: 1_000_000, ServerConnectionID: "next-1"}, true)
	waitUntil(t, "the end to be reported to the next server", func() bool { return ends() > n })

	s.ack("t1", 1, end.Seq-1) // only the running report
	s.stop()
	waitUntil(t, "the agent to notice", func() bool { return !a.connection.IsConnected() })
	before := ends()
	s.start()
	waitUntil(t, "the end to be reported after the reconnect", func() bool { return ends() > before })
	s.ack("t1", 1, end.Seq)
	waitUntil(t, "the outbox to be empty", func() bool { return a.outbox.PendingCount() == 0 })
}

func TestReconnect_SubscribesAndRegisters(t *testing.T) {
	s, dir := newFakeServer(t), t.TempDir()
	a := startAgent(t, s.config(dir))
	s.awaitRegistered(1)
	s.dispatch(shell("t1", "sleep 600"), 1)
	s.awaitRunning("t1", 1)
	for n := 2; n < 5; n++ {
		s.stop()
		waitUntil(t, "the agent to notice", func() bool { return !a.connection.IsConnected() })
		a.connection.HandleResponse(wire.Response{Success: true}) // the connection before has left it
		s.start()
		s.awaitRegistered(n)
	}
	s.remove("t1", 1)
	if end := s.awaitEnd("t1", 1); end.Reason != wire.ReasonStopped {
		t.Errorf("end = %+v, want Stopped", end)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, r := range s.registers {
		if r.RobotID != robot || r.DeviceInfo == nil || !slices.Contains(r.DeviceInfo.Drivers, "exec") || r.AgentVersion == "" || r.Address != "127.0.0.1" {
			t.Errorf("registration %d = %+v", i, r)
		}
	}
}

func TestHeartbeats(t *testing.T) {
	s := newFakeServer(t)
	c := s.config(t.TempDir())
	c.Heartbeat = 20 * time.Millisecond
	startAgent(t, c)
	waitUntil(t, "ten heartbeats", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.heartbeats) >= 10
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, h := range s.heartbeats {
		if h.Seq != s.heartbeats[0].Seq+uint64(i) || h.Seq == 0 || h.RobotID != "" || h.Token != "" {
			t.Errorf("heartbeat %d = %+v, want only its number", i+1, h)
		}
		if h.DeviceInfo != nil {
			t.Errorf("heartbeat %d carries a device that has not changed: %+v", i+1, h.DeviceInfo)
		}
	}
}

func TestOrderlyStop(t *testing.T) {
	s, dir := newFakeServer(t), t.TempDir()
	a := startAgent(t, s.config(dir))
	s.awaitRegistered(1)
	s.dispatch(shell("t1", "sleep 600"), 1)
	s.awaitRunning("t1", 1)
	a.stop()
	if end := s.awaitEnd("t1", 1); end.Reason != wire.ReasonAgentStopped || end.Signal != int32(syscall.SIGTERM) {
		t.Errorf("end = %+v, want AgentStopped by SIGTERM", end)
	}
	presences := func() []wire.Presence {
		s.mu.Lock()
		defer s.mu.Unlock()
		return slices.Clone(s.presences)
	}
	waitUntil(t, "the presence message", func() bool { return len(presences()) > 0 })
	if got, want := presences(), []wire.Presence{{Graceful: true, ConnectionID: s.registers[0].ConnectionID}}; !slices.Equal(got, want) {
		t.Errorf("presence %+v, want %+v and no last will", got, want)
	}
}

func TestStop_HurriedWithoutBroker(t *testing.T) {
	s, dir, shims := newFakeServer(t), t.TempDir(), &recordedShims{}
	a := startAgent(t, s.config(dir), recordShims(shims))
	s.awaitRegistered(1)
	s.dispatch(shell("t1", "trap '' TERM; echo up; while :; do sleep 600; done", func(w *wire.Task) {
		w.Spec.KillTimeout = killAfter(t, "1h")
	}), 1)
	waitUntil(t, "the task to ignore SIGTERM", func() bool { return output(t, dir, "t1", 1, record.Stdout) != "" })
	s.stop()
	a.stopHurriedly()
	must(t, a.err())
	// A grace period of stopGrace may have been set before the hurry was noticed.
	if got := shims.gracePeriods(); !slices.Contains(got, hurriedGrace) {
		t.Errorf("the task was stopped with grace periods of %v, want %v", got, hurriedGrace)
	}
	s.start()
	startAgent(t, s.config(dir))
	if end := s.awaitEnd("t1", 1); end.Reason != wire.ReasonAgentStopped || end.Signal != int32(syscall.SIGKILL) {
		t.Errorf("end after the restart = %+v, want AgentStopped by SIGKILL", end)
	}
}

// The runner of this agent does not respond, as if its disk were full.
func TestStop_WaitsNoLongerThanItsTimeouts(t *testing.T) {
	closed := make(chan struct{})
	close(closed)
	later := func(after time.Duration) <-chan struct{} {
		c := make(chan struct{})
		time.AfterFunc(after, func() { close(c) })
		return c
	}
	stopTasks := func(hurry <-chan struct{}) {
		a := &Agent{runner: runner.New(runner.Config{})}
		if err := a.stopTasks(hurry, nil); err == nil {
			t.Error("the agent reports an orderly stop")
		}
	}
	for _, test := range []struct {
		name string
		stop func()
		want time.Duration
	}{
		{"tasks", func() { stopTasks(nil) }, stopGrace + stopMargin},
		{"tasks, hurried from the beginning", func() { stopTasks(closed) }, hurriedGrace + stopMargin},
		{"tasks, hurried after two seconds", func() { stopTasks(later(2 * time.Second)) }, 2*time.Second + hurriedGrace + stopMargin},
		{"reports", func() { awaitDrained(nil, nil) }, ackTimeout},
		{"reports that are acknowledged", func() { awaitDrained(later(time.Millisecond), nil) }, time.Millisecond},
		{"reports, hurried after two seconds", func() { awaitDrained(nil, later(2*time.Second)) }, 2*time.Second + hurriedAcks},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			test.stop()
			if took := time.Since(began); took != test.want {
				t.Errorf("%s: waited for %v, want %v", test.name, took, test.want)
			}
		})
	}
}

func TestNew_RejectsSecondAgentOnStateDir(t *testing.T) {
	s, dir := newFakeServer(t), t.TempDir()
	startAgent(t, s.config(dir))
	_, err := New(s.config(dir), slog.New(slog.DiscardHandler))
	if !errors.Is(err, errLocked) || !strings.Contains(err.Error(), dir) {
		t.Errorf("New = %v, want errLocked that names %s", err, dir)
	}
}

func TestAgent_DropsInvalidMessages(t *testing.T) {
	s, dir := newFakeServer(t), t.TempDir()
	a := startAgent(t, s.config(dir))
	s.awaitRegistered(1)
	garbage := []string{
		"", "{", "\x00\xff\xfe", "null garbage", `{"action":1}`, `{"action":"create","task":{"spec":{"timeout":"-1s"}}}`,
		strings.Repeat("[", 10_000), strings.Repeat("x", wire.MaxPayload+1),
	}
	refused := []string{
		`{}`, `null`, `{"action":"create"}`, `{"action":"explode","task":{"metadata":{"uid":"t9"}}}`,
		`{"action":"create","task":{"metadata":{"uid":"../../etc"}}}`, `{"action":"create","task":{"metadata":{"uid":"a/b"}}}`,
		`{"action":"create","attempt":-1,"task":{"metadata":{"uid":"t9"}}}`,
		`{"action":"create","task":{"metadata":{"uid":"t9"},"spec":{"targetRobot":"r2"}}}`,
	}
	want := 0
	for _, k := range []wire.Kind{wire.KindDispatch, wire.KindState, wire.KindAck, wire.KindResponse} {
		for _, g := range garbage {
			if k != wire.KindDispatch && strings.Contains(g, "action") {
				continue // for those it is a message with nothing in it
			}
			s.publishRaw(wire.RobotTopic(robot, k), []byte(g), false)
			want++
		}
	}
	for _, g := range refused {
		s.publishRaw(wire.RobotTopic(robot, wire.KindDispatch), []byte(g), false)
		want++
	}
	want -= 4 // the broker does not forward messages beyond the maximum packet size
	waitUntil(t, fmt.Sprintf("%d messages to be dropped", want), func() bool { return a.problems.totalCount() >= want })
	s.dispatch(shell("t1", "exit 0"), 1)
	s.awaitEnd("t1", 1)
	if n := a.problems.totalCount(); n > want+4 {
		t.Errorf("%d messages dropped, want %d", n, want)
	}
}

func TestAgent_WithoutWritableJournal(t *testing.T) {
	t.Parallel()
	t.Run("nothing starts and nothing is reported until it takes it", func(t *testing.T) {
		s, dir := newFakeServer(t), t.TempDir()
		var full atomic.Bool
		full.Store(true)
		a := startAgent(t, s.config(dir), refusing(&full, syscall.ENOSPC))
		s.awaitRegistered(1)
		s.dispatch(shell("t1", "exit 0"), 1)
		waitUntil(t, "the refusal to be noted", func() bool { return a.problems.totalCount() > 0 })
		if got := s.reportsAbout("t1", 1); len(got) > 0 || output(t, dir, "t1", 1, record.Stdout) != "" {
			t.Errorf("reported %+v of what was not written down", got)
		}
		full.Store(false)
		if end := s.awaitEnd("t1", 1); end.State != wire.ReportCompleted {
			t.Errorf("end = %+v, want completed", end)
		}
	})
	t.Run("a failed sync ends the agent, and the next one takes its tasks over", func(t *testing.T) {
		s, dir := newFakeServer(t), t.TempDir()
		var broken atomic.Bool
		a := startAgent(t, s.config(dir), refusing(&broken, journal.ErrBroken))
		s.awaitRegistered(1)
		s.dispatch(shell("t1", "sleep 600"), 1)
		s.awaitRunning("t1", 1)
		broken.Store(true)
		s.dispatch(shell("t2", "sleep 600"), 1)
		if err := a.err(); !errors.Is(err, journal.ErrBroken) {
			t.Errorf("the agent ended with %v, want ErrBroken", err)
		}
		startAgent(t, s.config(dir))
		s.awaitRegistered(2)
		s.remove("t1", 1)
		if end := s.awaitEnd("t1", 1); end.Reason != wire.ReasonStopped {
			t.Errorf("end = %+v, want Stopped", end)
		}
	})
	t.Run("a stop does not wait for it forever, and no process is left", func(t *testing.T) {
		s, dir := newFakeServer(t), t.TempDir()
		var full atomic.Bool
		a := startAgent(t, s.config(dir), refusing(&full, syscall.ENOSPC))
		s.awaitRegistered(1)
		s.dispatch(shell("t1", "sleep 600"), 1)
		s.awaitRunning("t1", 1)
		full.Store(true)
		s.dispatch(shell("t2", "sleep 600"), 1)
		waitUntil(t, "the refusal to be noted", func() bool { return a.problems.totalCount() > 0 })
		a.stopHurriedly()
		if err := a.err(); err == nil {
			t.Error("the agent claims an orderly stop")
		}
		waitUntil(t, "all processes to be gone", func() bool { return len(taskProcesses(dir)) == 0 })
	})
}
