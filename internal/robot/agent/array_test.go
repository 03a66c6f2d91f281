package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/indexset"
	"k8s4r.io/k8s4r/internal/protocol/logs/record"
	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/agent/runner"
	"k8s4r.io/k8s4r/internal/robot/agent/transport"
	"k8s4r.io/k8s4r/internal/robot/shim"
)

// overRange has a task run these indexes.
func overRange(indexes string, items ...string) func(*wire.Task) {
	return func(t *wire.Task) { t.Spec.Array = &wire.TaskArray{Indexes: indexes, Items: items} }
}

// reportEvery sets the pause between two reports about a running range.
func reportEvery(pause time.Duration) option {
	return func(c *runner.Config, _ *transport.ConnectionConfig) {
		c.ProgressInterval, c.Jitter = pause, func(time.Duration) time.Duration { return 0 }
	}
}

func requireIndexes(t testing.TB, s wire.Status, succeeded, failed string) {
	t.Helper()
	if s.Array == nil || s.Array.Succeeded != succeeded || s.Array.Failed != failed {
		t.Errorf("report %+v has indexes %+v, want %q succeeded and %q failed", s, s.Array, succeeded, failed)
	}
}

func TestArray_ReportsTheEndsOfARange(t *testing.T) {
	s, dir := newFakeServer(t), t.TempDir()
	startAgent(t, s.config(dir))
	s.awaitRegistered(1)
	s.setFields(func() {
		if !s.registers[0].RunsArrays {
			t.Error("the registration does not report that the agent runs arrays")
		}
	})
	task := shell("t1", `echo "$0 $TAG"; [ $K8S4R_TASK_INDEX != 7 ] || exit 3; [ $K8S4R_TASK_ITEM != killed ] || kill -9 $$`, overRange("0-2,7-9", "a", "b", "c", "d", "killed", "${f}"))
	task.Spec.Config.Exec.Args = append(task.Spec.Config.Exec.Args, "${K8S4R_TASK_INDEX}:${K8S4R_TASK_ITEM}")
	task.Spec.Env = map[string]string{"TAG": "tag-${K8S4R_TASK_INDEX}"}
	s.dispatch(task, 1)
	end := s.awaitEnd("t1", 1)
	requireIndexes(t, end, "0-2,9", "7-8")
	if end.State != wire.ReportCompleted || end.ExitCode != 0 || end.Message != "Task completed: of 6 indexes, 2 have failed" {
		t.Errorf("end = %+v, want completed", end)
	}
	failures := end.Array.Failures
	if len(failures) != 2 || failures[0].ExitCode != 3 || failures[0].Reason != wire.ReasonExited || failures[1].Signal != 9 || failures[1].Reason != wire.ReasonSignaled || failures[1].FinishedAt.IsZero() {
		t.Errorf("failures = %+v, want exit code 3 and signal 9", failures)
	}
	sum := int32(0)
	for _, n := range end.Array.Durations {
		sum += n
	}
	if sum != 6 {
		t.Errorf("durations = %v, want 6", end.Array.Durations)
	}
	want := "0:a tag-0\n1:b tag-1\n2:c tag-2\n7:d tag-7\n8:killed tag-8\n9:${f} tag-9\n"
	if got := output(t, dir, "t1", 1, record.Stdout); got != want {
		t.Errorf("output = %q, want %q", got, want)
	}
}

func TestArray_TaskOfASingleIndex(t *testing.T) {
	s, dir := newFakeServer(t), t.TempDir()
	startAgent(t, s.config(dir))
	s.awaitRegistered(1)
	s.dispatch(shell("t1", "echo $K8S4R_TASK_INDEX $K8S4R_TASK_ITEM; exit 4", func(t *wire.Task) {
		t.Metadata.Labels = map[string]string{wire.LabelTaskIndex: "130"}
		t.Spec.Array = &wire.TaskArray{Index: new(int32(17)), Items: []string{"an item"}}
	}), 1)
	if end := s.awaitEnd("t1", 1); end.ExitCode != 4 || end.Array != nil {
		t.Errorf("end = %+v, want exit code 4, and no indexes", end)
	}
	if got := output(t, dir, "t1", 1, record.Stdout); got != "17 an item\n" {
		t.Errorf("output = %q, want its index and item", got)
	}
}

func TestArray_RejectsWhatItCannotRun(t *testing.T) {
	s := newFakeServer(t)
	startAgent(t, s.config(t.TempDir()))
	s.awaitRegistered(1)
	for i, test := range []struct {
		want  string
		array wire.TaskArray
	}{
		{"array.indexes: must have between 1 and 1000", wire.TaskArray{}},
		{"array.indexes: must have between 1 and 1000", wire.TaskArray{Indexes: "0-1000"}},
		{"array.indexes: ", wire.TaskArray{Indexes: "3-1"}},
		{"array.items: has 1 items for 2 indexes", wire.TaskArray{Indexes: "0-1", Items: []string{"a"}}},
		{"array.index: ", wire.TaskArray{Index: new(int32(-1))}},
		{"array.index: ", wire.TaskArray{Index: new(int32(1)), Items: []string{"a", "b"}}},
	} {
		uid := fmt.Sprint("t", i)
		s.dispatch(shell(uid, "exit 0", func(t *wire.Task) { t.Spec.Array = &test.array }), 1)
		if end := s.awaitEnd(uid, 1); end.Reason != wire.ReasonRejected || !strings.Contains(end.Message, test.want) {
			t.Errorf("%+v: end = %+v, want %q", test.array, end, test.want)
		}
	}
	s.dispatch(shell("command", "exit 0", overRange("0-1"), func(t *wire.Task) { t.Spec.Config.Exec.Command = "tool-${K8S4R_TASK_INDEX}" }), 1)
	if end := s.awaitEnd("command", 1); end.Reason != wire.ReasonStartFailed || !strings.Contains(end.Message, "config.execConfig.command: must not contain the index") {
		t.Errorf("end = %+v, want the command rejected", end)
	}
}

func TestArray_ReportsProgressWhileItRuns(t *testing.T) {
	s, dir := newFakeServer(t), t.TempDir()
	startAgent(t, s.config(dir), reportEvery(5*time.Millisecond))
	s.awaitRegistered(1)
	s.dispatch(shell("t1", "touch at-$K8S4R_TASK_INDEX; [ $K8S4R_TASK_INDEX != 1 ] || exit 1; [ $K8S4R_TASK_INDEX != 3 ] || while [ ! -e go ]; do sleep 0.01; done", overRange("0-4")), 1)
	progress := s.await("t1", 1, "progress", func(r wire.Status) bool { return r.Array != nil && r.Array.Succeeded == "0,2" })
	if progress.State != wire.ReportRunning || progress.Array.Failed != "1" || progress.StartedAt == nil || progress.Message != "3 of 5 indexes have ended" {
		t.Errorf("progress = %+v", progress)
	}
	must(t, os.WriteFile(filepath.Join(runner.StateDir(dir).WorkDir("t1", 1), "go"), nil, 0o600))
	requireIndexes(t, s.awaitEnd("t1", 1), "0,2-4", "1")
}

func TestArray_PausesAfterTheRunningIndex(t *testing.T) {
	s, dir := newFakeServer(t), t.TempDir()
	startAgent(t, s.config(dir))
	s.awaitRegistered(1)
	epoch := s.dispatch(shell("t1", "[ $K8S4R_TASK_INDEX != 1 ] || { touch ready; while [ ! -e go ]; do sleep 0.01; done; }", overRange("0-4")), 1)
	work := runner.StateDir(dir).WorkDir("t1", 1)
	waitUntil(t, "index 1 to run", func() bool { _, err := os.Stat(filepath.Join(work, "ready")); return err == nil })
	list := wire.TaskList{Tasks: []wire.Task{}, Epoch: epoch + 1, Refs: []wire.TaskReference{{UID: "t1", Attempt: 1, Started: true, StartsNoIndex: true}}}
	s.publish(wire.KindState, list, true)
	// The request is in the pipe once a task that is dispatched after the list has ended.
	s.dispatch(shell("t2", "exit 0"), 1)
	s.awaitEnd("t2", 1)
	must(t, os.WriteFile(filepath.Join(work, "go"), nil, 0o600))
	end := s.awaitEnd("t1", 1)
	requireIndexes(t, end, "0-1", "")
	if end.State != wire.ReportFailed || end.Reason != wire.ReasonPaused || !strings.Contains(end.Message, "2 of 5 indexes have ended") {
		t.Errorf("end = %+v, want Paused", end)
	}
}

func TestArray_StopReportsWhatHasEnded(t *testing.T) {
	s, dir := newFakeServer(t), t.TempDir()
	startAgent(t, s.config(dir))
	s.awaitRegistered(1)
	s.dispatch(shell("t1", "[ $K8S4R_TASK_INDEX != 2 ] || { touch ready; exec sleep 600; }", overRange("0-4")), 1)
	waitUntil(t, "index 2 to run", func() bool {
		_, err := os.Stat(filepath.Join(runner.StateDir(dir).WorkDir("t1", 1), "ready"))
		return err == nil
	})
	s.remove("t1", 1)
	end := s.awaitEnd("t1", 1)
	requireIndexes(t, end, "0-1", "")
	if end.Reason != wire.ReasonStopped {
		t.Errorf("end = %+v, want Stopped", end)
	}
}

// The state file has what a killed shim knew. The attempt runs nothing again.
func TestArray_KilledShimKeepsTheEnds(t *testing.T) {
	s, dir := newFakeServer(t), t.TempDir()
	startAgent(t, s.config(dir))
	s.awaitRegistered(1)
	s.dispatch(shell("t1", "[ $K8S4R_TASK_INDEX != 2 ] || { touch ready; setsid sleep 600 & sleep 600; }; echo n=$K8S4R_TASK_INDEX > $K8S4R_OUTPUTS; exit $K8S4R_TASK_INDEX", overRange("0-4"), func(t *wire.Task) { t.Spec.Outputs = []string{"n"} }), 1)
	waitUntil(t, "index 2 to run", func() bool { return len(taskProcesses(dir)) == 3 })
	state, err := shim.ReadState(runner.StateDir(dir).ShimDir("t1", 1))
	must(t, err)
	must(t, syscall.Kill(state.Shim.PID, syscall.SIGKILL))
	end := s.awaitEnd("t1", 1)
	requireIndexes(t, end, "0", "1")
	if end.Reason != wire.ReasonAgentRestarted || !strings.Contains(end.Message, "index 2 was running") || end.Outputs["n"] != "1" {
		t.Errorf("end = %+v, want AgentRestarted while 2 ran, with the outputs of 1", end)
	}
	if left := taskProcesses(dir); len(left) > 0 {
		t.Errorf("processes %v are left over", left)
	}
}

// A robot that loses power leaves a state file whose last line may be torn, and no processes.
func TestArray_AfterALossOfPowerNothingRunsAgain(t *testing.T) {
	s, dir := newFakeServer(t), t.TempDir()
	agent := agentProcess(t, s, dir)
	must(t, agent.Start())
	s.awaitRegistered(1)
	task := shell("t1", "echo $K8S4R_TASK_INDEX >> ../../../ran; [ $K8S4R_TASK_INDEX != 2 ] || exec sleep 600", overRange("0-4"))
	s.dispatch(task, 1)
	ran := filepath.Join(dir, "tasks", "ran")
	waitUntil(t, "index 2 to run", func() bool { return len(lines(ran)) == 3 })
	shimDir := runner.StateDir(dir).ShimDir("t1", 1)
	state, err := shim.ReadState(shimDir)
	must(t, err)
	must(t, agent.Process.Kill())
	_ = agent.Wait()
	must(t, syscall.Kill(state.Shim.PID, syscall.SIGKILL))
	waitUntil(t, "the shim to be gone", func() bool { running, err := shim.IsRunning(shimDir); return err == nil && !running })
	text, err := os.ReadFile(filepath.Join(shimDir, "state"))
	must(t, err)
	// What the end of index 1 would be without its last byte.
	end := strings.LastIndex(string(text), "+2\n")
	must(t, os.WriteFile(filepath.Join(shimDir, "state"), text[:end-1], 0o600))
	startAgent(t, s.config(dir))
	last := s.awaitEnd("t1", 1)
	requireIndexes(t, last, "0", "")
	if last.Reason != wire.ReasonAgentRestarted {
		t.Errorf("end = %+v, want AgentRestarted", last)
	}
	s.dispatch(task, 1)
	s.dispatch(shell("t2", "exit 0"), 1)
	s.awaitEnd("t2", 1)
	if got := lines(ran); !slices.Equal(got, []string{"0", "1", "2"}) {
		t.Errorf("indexes %v ran, want each of them once", got)
	}
}

// Kills of the agent cost no index: the shim goes on, and the next agent reports what it has recorded.
func TestArray_SurvivesKillsOfTheAgent(t *testing.T) {
	s, dir := newFakeServer(t), t.TempDir()
	s.setFields(func() { s.ignoreReports = true })
	killTasksAtEnd(t, dir)
	const indexes = 300
	for kills := range 4 {
		agent := agentProcess(t, s, dir)
		must(t, agent.Start())
		if kills == 0 {
			s.awaitRegistered(1)
			s.dispatch(shell("t1", "echo $K8S4R_TASK_INDEX >> ../../../ran; [ $((K8S4R_TASK_INDEX % 10)) != 9 ] || exit 1", overRange(fmt.Sprint("0-", indexes-1))), 1)
		}
		want := (kills + 1) * 50
		waitUntil(t, "some indexes to run", func() bool { return len(lines(filepath.Join(dir, "tasks", "ran"))) >= want })
		must(t, agent.Process.Kill())
		_ = agent.Wait()
	}
	s.setFields(func() { s.ignoreReports = false })
	startAgent(t, s.config(dir))
	end := s.awaitEnd("t1", 1)
	if end.State != wire.ReportCompleted {
		t.Fatalf("end = %+v, want completed", end)
	}
	succeeded, err := indexset.Parse(end.Array.Succeeded)
	must(t, err)
	failed, err := indexset.Parse(end.Array.Failed)
	must(t, err)
	if all := succeeded.Union(failed); all.String() != fmt.Sprint("0-", indexes-1) || failed.Len() != indexes/10 || succeeded.Len() != indexes*9/10 || len(end.Array.Failures) != 30 {
		t.Errorf("%s succeeded, %s failed", succeeded, failed)
	}
	if ran := lines(filepath.Join(dir, "tasks", "ran")); len(ran) != indexes {
		t.Errorf("%d indexes ran, want %d", len(ran), indexes)
	}
}

// The report with all ends is repeated until it is acknowledged, also by the next agent.
func TestArray_NextAgentRepeatsTheEnds(t *testing.T) {
	s, dir := newFakeServer(t), t.TempDir()
	s.setFields(func() { s.ignoreReports = true })
	first := agentProcess(t, s, dir)
	must(t, first.Start())
	s.awaitRegistered(1)
	s.dispatch(shell("t1", "[ $K8S4R_TASK_INDEX = 1 ]", overRange("0-2")), 1)
	s.awaitEnd("t1", 1)
	must(t, first.Process.Kill())
	_ = first.Wait()
	s.setFields(func() { s.reports = nil })
	startAgent(t, s.config(dir))
	end := s.awaitEnd("t1", 1)
	requireIndexes(t, end, "1", "0,2")
	if len(end.Array.Failures) != 2 || len(end.Array.Durations) == 0 {
		t.Errorf("indexes = %+v, want the failures and durations", end.Array)
	}
}
