package agent

import (
	"fmt"
	"slices"
	"syscall"
	"testing"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/agent/runner"
	"k8s4r.io/k8s4r/internal/robot/proc"
	"k8s4r.io/k8s4r/internal/robot/shim"
	"k8s4r.io/k8s4r/internal/testkit/permutation"
)

// A robot that shuts down signals the agent, the shims and the tasks. Whatever order these signals have,
// and whichever process they reach first, the task is not blamed.
func TestShutdown_InEveryOrderIsNoFaultOfTheTask(t *testing.T) {
	for i, order := range permutation.ListAll([]syscall.Signal{syscall.SIGSTOP, syscall.SIGTERM, syscall.SIGCONT, syscall.SIGKILL}) {
		t.Run(fmt.Sprint(order), func(t *testing.T) {
			t.Parallel()
			s, dir := newFakeServer(t), t.TempDir()
			killTasksAtEnd(t, dir)
			agent := agentProcess(t, s, dir, "--on-stop", []string{OnStopLeave, OnStopEnd}[i%2])
			must(t, agent.Start())
			s.awaitRegistered(1)
			s.dispatch(shell("t1", "exec sleep 600"), 1)
			s.awaitRunning("t1", 1)
			state, err := shim.ReadState(runner.StateDir(dir).ShimDir("t1", 1))
			must(t, err)
			signalInOrder(order, state.Started.PID, state.Shim.PID, agent.Process.Pid)
			_ = agent.Wait() // an error is its exit by a signal
			startAgent(t, s.config(dir))
			if end := s.awaitEnd("t1", 1); end.Reason != wire.ReasonAgentStopped && end.Reason != wire.ReasonAgentRestarted {
				t.Errorf("end = %+v, want AgentStopped or AgentRestarted", end)
			}
		})
	}
}

// signalInOrder sends each signal to all processes, in their order. SIGKILL is sent in the opposite
// order: a task that it alone kills, before any SIGTERM, has failed.
func signalInOrder(order []syscall.Signal, pids ...int) {
	for _, s := range order {
		to := slices.Clone(pids)
		if s == syscall.SIGKILL {
			slices.Reverse(to)
		}
		for _, pid := range to {
			_ = syscall.Kill(pid, s) // it may have exited
		}
	}
}

func TestShutdown_TaskThatEndsBeforeItsShimIsSignaled(t *testing.T) {
	s, dir := newFakeServer(t), t.TempDir()
	killTasksAtEnd(t, dir)
	startAgent(t, s.config(dir))
	s.awaitRegistered(1)
	s.dispatch(shell("t1", "exec sleep 600"), 1)
	s.awaitRunning("t1", 1)
	state, err := shim.ReadState(runner.StateDir(dir).ShimDir("t1", 1))
	must(t, err)
	must(t, syscall.Kill(state.Shim.PID, syscall.SIGSTOP))
	must(t, syscall.Kill(state.Started.PID, syscall.SIGTERM))
	waitUntil(t, "the task to end", func() bool { return !proc.IsAlive(state.Started.PID) })
	must(t, syscall.Kill(state.Shim.PID, syscall.SIGTERM))
	must(t, syscall.Kill(state.Shim.PID, syscall.SIGCONT))
	if end := s.awaitEnd("t1", 1); end.Reason != wire.ReasonAgentStopped {
		t.Errorf("end = %+v, want AgentStopped", end)
	}
}

func TestShutdown_OfAPreparedTaskIsNoFault(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		t.Run(signal.String(), func(t *testing.T) {
			s, dir := newFakeServer(t), t.TempDir()
			startAgent(t, s.config(dir))
			s.awaitRegistered(1)
			task, requested, _ := slowArtifact(t, "t1")
			s.dispatch(task, 1)
			waitUntil(t, "the download", requested.Load)
			state, err := shim.ReadState(runner.StateDir(dir).ShimDir("t1", 1))
			must(t, err)
			must(t, syscall.Kill(state.Shim.PID, signal))
			if end := s.awaitEnd("t1", 1); !wire.IsWithoutFault(end.Reason) {
				t.Errorf("end = %+v, want one without fault", end)
			}
		})
	}
}
