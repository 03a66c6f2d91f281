package simrobot_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/testkit"
	"k8s4r.io/k8s4r/internal/testkit/fakeserver"
	"k8s4r.io/k8s4r/internal/testkit/simrobot"
)

// reports are those of a robot, without repetitions.
type reports struct {
	mu  sync.Mutex
	all []wire.Status
}

func (r *reports) record(_ string, s wire.Status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, known := range r.all {
		if known.Seq == s.Seq {
			return
		}
	}
	r.all = append(r.all, s)
}

// await waits for a report.
func (r *reports) await(t *testing.T, what string, ok func(wire.Status) bool) (found wire.Status) {
	t.Helper()
	testkit.Eventually(t, time.Minute, "a report: "+what, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		i := slices.IndexFunc(r.all, ok)
		if i >= 0 {
			found = r.all[i]
		}
		return i >= 0
	})
	return found
}

// startRobot starts a robot. It tries again if the server has not subscribed yet.
func startRobot(t *testing.T, c simrobot.Config) *simrobot.Robot {
	t.Helper()
	for until := time.Now().Add(time.Minute); ; {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		r, err := simrobot.Start(ctx, c)
		cancel()
		if err == nil {
			return r
		}
		if time.Now().After(until) {
			t.Fatal(err)
		}
	}
}

// startFailing starts a robot with a task whose process always fails.
func startFailing(t *testing.T, restartsTasks bool, policy wire.RestartPolicy) (*fakeserver.Server, *simrobot.Robot, *reports) {
	t.Helper()
	b, got := fakeserver.StartBroker(t), &reports{}
	server := fakeserver.Start(t, b.Addr, got.record)
	r := startRobot(t, simrobot.Config{
		RobotID: "r1", Broker: "mqtt://" + b.Addr, RestartsTasks: restartsTasks, Exit: func(string, int32) int32 { return 3 },
	})
	t.Cleanup(r.Stop)
	task := fakeserver.NewShellTask("t1", "exit 3")
	task.Spec.RestartPolicy = &policy
	server.SendDispatch("r1", wire.Dispatch{Action: wire.ActionCreate, Task: task, Attempt: 1, Epoch: 1})
	return server, r, got
}

func TestRobot_RestartsTasksByThePolicy(t *testing.T) {
	t.Parallel()
	_, r, got := startFailing(t, true, wire.RestartPolicy{Attempts: 1})
	end := got.await(t, "the end", wire.Status.IsTerminal)
	if end.State != wire.ReportFailed || end.Run != 2 || len(end.Runs) != 2 || end.Runs[0].ExitCode != 3 || end.Runs[1].FinishedAt == nil || r.StartCounts()["t1"] != 2 {
		t.Errorf("end %+v after %d starts, want that of the second run", end, r.StartCounts()["t1"])
	}
	wait := got.await(t, "the wait", func(s wire.Status) bool { return s.NextRunAt != nil })
	if wait.State != wire.ReportRunning || wait.Reason != wire.ReasonRestarting || wait.Run != 1 || wait.Seq >= end.Seq {
		t.Errorf("report between two runs %+v", wait)
	}
}

func TestRobot_LeavesRestartsToTheManager(t *testing.T) {
	t.Parallel()
	_, r, got := startFailing(t, false, wire.RestartPolicy{Attempts: 1})
	if end := got.await(t, "the end", wire.Status.IsTerminal); end.Run != 0 || r.StartCounts()["t1"] != 1 {
		t.Errorf("end %+v after %d starts, want that of the only one, without a number", end, r.StartCounts()["t1"])
	}
}

func TestRobot_StopsATaskThatWaitsForItsRun(t *testing.T) {
	t.Parallel()
	server, r, got := startFailing(t, true, wire.RestartPolicy{Attempts: 1, Delay: wire.Duration(time.Hour)})
	got.await(t, "the wait", func(s wire.Status) bool { return s.NextRunAt != nil })
	server.SendDispatch("r1", wire.Dispatch{Action: wire.ActionDelete, Task: fakeserver.NewShellTask("t1", ""), Attempt: 1})
	if end := got.await(t, "the end", wire.Status.IsTerminal); end.Reason != wire.ReasonStopped || end.Run != 1 || r.StartCounts()["t1"] != 1 {
		t.Errorf("end %+v after %d starts, want Stopped in the first run", end, r.StartCounts()["t1"])
	}
}

func TestRobot_RunsATaskByItsDefinition(t *testing.T) {
	t.Parallel()
	b, got := fakeserver.StartBroker(t), &reports{}
	server := fakeserver.Start(t, b.Addr, got.record)
	r := startRobot(t, simrobot.Config{RobotID: "r1", Broker: "mqtt://" + b.Addr, RunTask: func(task wire.Task, _ int32) (time.Duration, int32) {
		if task.Metadata.UID == "bad" {
			return time.Millisecond, 3
		}
		return -1, 0
	}})
	t.Cleanup(r.Stop)
	for _, uid := range []string{"good", "bad"} {
		server.SendDispatch("r1", wire.Dispatch{Action: wire.ActionCreate, Task: fakeserver.NewShellTask(uid, ""), Attempt: 1, Epoch: 1})
	}
	got.await(t, "the good task runs", func(s wire.Status) bool { return s.TaskUID == "good" && s.State == wire.ReportRunning })
	if end := got.await(t, "an end", wire.Status.IsTerminal); end.TaskUID != "bad" || end.ExitCode != 3 || !slices.Equal(r.RunningTasks(), []string{"good"}) {
		t.Errorf("end %+v, running %v", end, r.RunningTasks())
	}
}
