package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s4r.io/k8s4r/internal/protocol/logs/record"
	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/agent/runner"
)

// endlessly restarts a task after the shortest delay.
func endlessly(t *wire.Task) {
	t.Spec.RestartPolicy = &wire.RestartPolicy{Attempts: 1, Mode: "delay"}
}

// A task keeps its directory and its log from run to run, and each run has a shim of its own.
func TestRestart_RunsATaskAgainUntilItIsDeleted(t *testing.T) {
	t.Parallel()
	s, dir := newFakeServer(t), t.TempDir()
	startAgent(t, s.config(dir))
	s.awaitRegistered(1)
	s.setFields(func() {
		if !s.registers[0].RestartsTasks {
			t.Error("the registration does not report that the agent restarts tasks")
		}
	})
	s.dispatch(shell("t1", `echo x >> runs; echo "output $(wc -l < runs)"; printf unfinished; [ $(wc -l < runs) = 3 ] || exit 7; exec sleep 600`, endlessly), 1)
	third := s.await("t1", 1, "the third run", func(r wire.Status) bool { return r.Run == 3 && r.Reason == "" })
	if third.State != wire.ReportRunning || len(third.Runs) != 3 || third.Runs[0].ExitCode != 7 || third.Runs[2].FinishedAt != nil {
		t.Errorf("report of the third run = %+v", third)
	}
	for _, r := range s.distinctReports("t1", 1) {
		if r.Reason == wire.ReasonRestarting && (r.NextRunAt == nil || r.State != wire.ReportRunning || !strings.Contains(r.Message, "exit code 7")) {
			t.Errorf("report between two runs = %+v", r)
		}
	}
	work := runner.StateDir(dir).WorkDir("t1", 1)
	if got := len(lines(filepath.Join(work, "runs"))); got != 3 {
		t.Errorf("the directory has seen %d runs, want 3", got)
	}
	shims, err := filepath.Glob(filepath.Join(filepath.Dir(work), "shim*"))
	must(t, err)
	if len(shims) != 1 || filepath.Base(shims[0]) != "shim-3" {
		t.Errorf("directories of shims: %v, want that of the third run alone", shims)
	}
	waitUntil(t, "the output of the third run", func() bool {
		return output(t, dir, "t1", 1, record.Stdout) == "output 1\nunfinished\noutput 2\nunfinished\noutput 3\nunfinished"
	})
	system := output(t, dir, "t1", 1, record.System)
	if !strings.Contains(system, "run 2 starts, ") || !strings.Contains(system, " after run 2 ended: exit code 7\n") {
		t.Errorf("lines of the agent in the log: %q", system)
	}
	s.remove("t1", 1)
	end := s.awaitEnd("t1", 1)
	if end.Reason != wire.ReasonStopped || end.Run != 3 || len(end.Runs) != 3 || end.Runs[2].Reason != wire.ReasonStopped {
		t.Errorf("end = %+v, want Stopped in the third run", end)
	}
	if left := taskProcesses(dir); len(left) > 0 {
		t.Errorf("processes %v are left over", left)
	}
}

// The agent that follows starts the next run of an attempt that waited for it.
func TestRestart_NextAgentGoesOn(t *testing.T) {
	t.Parallel()
	s, dir := newFakeServer(t), t.TempDir()
	killTasksAtEnd(t, dir)
	agent := agentProcess(t, s, dir)
	must(t, agent.Start())
	s.awaitRegistered(1)
	task := shell("t1", `echo x >> runs; [ -e go ] || exit 7`, endlessly)
	s.dispatch(task, 1)
	s.await("t1", 1, "a wait", func(r wire.Status) bool { return r.NextRunAt != nil })
	must(t, agent.Process.Kill())
	_ = agent.Wait()
	ran := filepath.Join(runner.StateDir(dir).WorkDir("t1", 1), "runs")
	before := len(lines(ran))
	must(t, os.WriteFile(filepath.Join(filepath.Dir(ran), "go"), nil, 0o600))
	startAgent(t, s.config(dir))
	end := s.awaitEnd("t1", 1)
	if end.State != wire.ReportCompleted || end.Run != int64(before)+1 || len(lines(ran)) != before+1 {
		t.Errorf("after %d runs: end = %+v, and %d runs", before, end, len(lines(ran)))
	}
}

// Without contact the agent does not give up a task. The first contact ends it.
func TestRestart_ContactEndsATaskWhosePolicyIsUsedUp(t *testing.T) {
	t.Parallel()
	s, dir := newFakeServer(t), t.TempDir()
	startAgent(t, s.config(dir))
	s.awaitRegistered(1)
	failing := shell("t1", "echo x >> runs; exit 7", func(t *wire.Task) { t.Spec.RestartPolicy = &wire.RestartPolicy{Attempts: 1} })
	s.dispatch(failing, 1)
	if end := s.awaitEnd("t1", 1); end.Run != 2 || end.ExitCode != 7 {
		t.Errorf("end with contact = %+v, want that of the second run", end)
	}
	s.dispatch(failing, 2)
	s.await("t1", 2, "a wait", func(r wire.Status) bool { return r.NextRunAt != nil })
	s.stop()
	waitUntil(t, "a run that the policy does not allow", func() bool {
		return len(lines(filepath.Join(runner.StateDir(dir).WorkDir("t1", 2), "runs"))) > 2
	})
	s.start()
	if end := s.awaitEnd("t1", 2); end.Run < 3 || end.ExitCode != 7 || end.Reason != wire.ReasonExited {
		t.Errorf("end after a time without contact = %+v, want that of the last run", end)
	}
}
