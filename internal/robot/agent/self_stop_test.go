package agent

import (
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/agent/runner"
	"k8s4r.io/k8s4r/internal/robot/agent/transport"
	"k8s4r.io/k8s4r/internal/robot/proc"
	"k8s4r.io/k8s4r/internal/robot/shim"
)

// startSelfStopping starts a task that ignores SIGTERM and must end some time after the robot has lost
// contact. It returns the task's process and that of its shim.
func startSelfStopping(t *testing.T, s *fakeServer, dir string, after time.Duration) (task, shimPID int) {
	t.Helper()
	s.awaitRegistered(1)
	spec := shell("t1", "trap '' TERM; while :; do sleep 600; done", func(t *wire.Task) {
		kill := wire.Duration(time.Millisecond)
		t.Spec.StopOnRobotAfter, t.Spec.KillTimeout = wire.Duration(after), &kill
	})
	beats := -1
	waitUntil(t, "the task to run", func() bool {
		// The agent drops a dispatch unless a heartbeat was acknowledged within the deadline.
		if n := s.countHeartbeats(); n > beats {
			beats = n
			s.dispatch(spec, 1)
		}
		return slices.ContainsFunc(s.reportsAbout("t1", 1), func(r wire.Status) bool { return r.State == wire.ReportRunning })
	})
	state, err := shim.ReadState(runner.StateDir(dir).ShimDir("t1", 1))
	must(t, err)
	return state.Started.PID, state.Shim.PID
}

func (s *fakeServer) countHeartbeats() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.heartbeats)
}

func awaitDeath(t *testing.T, pid int) {
	t.Helper()
	waitUntil(t, "the task's process to end", func() bool { return !proc.IsAlive(pid) })
}

// The shim enforces the deadline while the agent is stopped. When it continues, it reports the end.
func TestSelfStop_HoldsWhileAgentIsStopped(t *testing.T) {
	t.Parallel()
	s, dir := newFakeServer(t), t.TempDir()
	agent := agentProcess(t, s, dir, "--heartbeat", "1s")
	must(t, agent.Start())
	task, _ := startSelfStopping(t, s, dir, 3*time.Second)
	must(t, agent.Process.Signal(syscall.SIGSTOP))
	awaitDeath(t, task)
	must(t, agent.Process.Signal(syscall.SIGCONT))
	if end := s.awaitEnd("t1", 1); end.Reason != wire.ReasonSelfStopped {
		t.Errorf("the end is %+v", end)
	}
}

// silentRobot is a robot that is without contact for long from some time on.
type silentRobot struct {
	*transport.LastSeen
	isSilent atomic.Bool
}

func (r *silentRobot) IsPastDeadline(time.Duration) bool { return r.isSilent.Load() }

// The agent enforces the deadline while the shim is stopped.
func TestSelfStop_HoldsWhileShimIsStopped(t *testing.T) {
	s, dir := newFakeServer(t), t.TempDir()
	var contact silentRobot
	startAgent(t, s.config(dir), func(c *runner.Config, _ *transport.ConnectionConfig) {
		contact.LastSeen = c.LastSeen.(*transport.LastSeen)
		c.LastSeen, c.SelfStopMargin = &contact, 100*time.Millisecond
	})
	task, shimPID := startSelfStopping(t, s, dir, time.Hour)
	must(t, syscall.Kill(shimPID, syscall.SIGSTOP))
	contact.isSilent.Store(true)
	awaitDeath(t, task)
	if end := s.awaitEnd("t1", 1); !end.IsTerminal() || end.State == wire.ReportCompleted {
		t.Errorf("the end is %+v", end)
	}
}
