package shim_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/artifact"
	"k8s4r.io/k8s4r/internal/robot/proc"
	"k8s4r.io/k8s4r/internal/robot/shim"
	"k8s4r.io/k8s4r/internal/robot/shim/setup"
	"k8s4r.io/k8s4r/internal/testkit/permutation"
)

// The ends of a task at SIGTERM, as scripts that create the file "ready" first.
var shutdownScripts = map[string]string{
	"ended by the signal": "touch ready; exec sleep 600",
	"exits with 143":      "trap 'exit 143' TERM; touch ready; while :; do sleep 0.01; done",
}

// waitLong makes a shim wait for SIGTERM for longer than any test takes.
func waitLong(s *shim.Spec) { s.ShutdownWait = time.Hour }

func (c testShim) requireAgentStopped() {
	c.t.Helper()
	if e := c.awaitExit().Exit; e == nil || e.StopReason != wire.ReasonAgentStopped {
		c.t.Errorf("exit = %+v, want AgentStopped", e)
	}
}

func (c testShim) send(s syscall.Signal) {
	c.t.Helper()
	must(c.t, syscall.Kill(c.pid, s))
}

// taskPID waits until the shim has recorded the start of the task.
func (c testShim) taskPID() int {
	c.t.Helper()
	c.awaitReady()
	c.waitUntil("the task has started", func() bool { return c.state().Started != nil })
	return c.state().Started.PID
}

// endTask sends a signal to the task and waits until it has exited.
func (c testShim) endTask(pid int, s syscall.Signal) {
	c.t.Helper()
	must(c.t, syscall.Kill(pid, s))
	c.awaitExited(pid)
}

func (c testShim) awaitExited(pid int) {
	c.t.Helper()
	c.waitUntil(fmt.Sprintf("process %d has exited", pid), func() bool { return !proc.IsAlive(pid) })
}

func TestShim_ShutdownIsNoFaultOfTheTask(t *testing.T) {
	for name, script := range shutdownScripts {
		t.Run(name+", while the shim is stopped", func(t *testing.T) {
			t.Parallel()
			c := spawn(t, script)
			pid := c.taskPID()
			c.send(syscall.SIGSTOP)
			c.endTask(pid, syscall.SIGTERM)
			c.send(syscall.SIGTERM)
			c.send(syscall.SIGCONT)
			c.requireAgentStopped()
		})
		t.Run(name+", and the shim gets SIGTERM later", func(t *testing.T) {
			t.Parallel()
			c := spawn(t, script, waitLong)
			c.endTask(c.taskPID(), syscall.SIGTERM)
			c.send(syscall.SIGTERM)
			c.requireAgentStopped()
		})
		t.Run(name+", and the agent requests the stop later", func(t *testing.T) {
			t.Parallel()
			c := spawn(t, script, waitLong)
			c.endTask(c.taskPID(), syscall.SIGTERM)
			must(t, shim.ControlRequest{Stop: wire.ReasonAgentStopped}.Send(filepath.Join(c.dir, "shim")))
			c.requireAgentStopped()
		})
	}
	t.Run("exits with another code, while the shim is stopped", func(t *testing.T) {
		t.Parallel()
		c := spawn(t, "trap 'exit 5' TERM; touch ready; while :; do sleep 0.01; done")
		pid := c.taskPID()
		c.send(syscall.SIGSTOP)
		c.endTask(pid, syscall.SIGTERM)
		c.send(syscall.SIGTERM)
		c.send(syscall.SIGCONT)
		c.requireAgentStopped()
	})
}

// systemd stops all processes, sends SIGTERM, continues them, and sends SIGKILL to what is left. Other
// init systems do it in other orders.
func TestShim_ShutdownInEveryOrder(t *testing.T) {
	orders := permutation.ListAll([]syscall.Signal{syscall.SIGSTOP, syscall.SIGTERM, syscall.SIGCONT, syscall.SIGKILL})
	for _, order := range orders {
		for _, isTaskFirst := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v, task first %v", order, isTaskFirst), func(t *testing.T) {
				t.Parallel()
				c := spawn(t, "touch ready; exec sleep 600", waitLong)
				c.signalBoth(order, isTaskFirst)
				switch s := c.awaitExit(); {
				case s.Exit == nil && s.MayHaveStarted: // the agent reports AgentRestarted
				case s.Exit == nil || s.Exit.StopReason != wire.ReasonAgentStopped:
					t.Errorf("exit = %+v, want AgentStopped, or none", s.Exit)
				}
			})
		}
	}
}

// signalBoth sends each signal to the task and its shim. SIGKILL reaches the shim first: if it kills
// the task alone, and before any SIGTERM, the task fails.
func (c testShim) signalBoth(order []syscall.Signal, isTaskFirst bool) {
	c.t.Helper()
	pids := []int{c.pid, c.taskPID()}
	for _, s := range order {
		if isTaskFirst && s != syscall.SIGKILL {
			_ = syscall.Kill(pids[1], s)
			_ = syscall.Kill(pids[0], s)
			continue
		}
		_ = syscall.Kill(pids[0], s)
		_ = syscall.Kill(pids[1], s)
	}
}

// The shim survives: only the task is killed after SIGTERM was sent to both.
func TestShim_ShutdownThatKillsTheTask(t *testing.T) {
	for _, order := range permutation.ListAll([]syscall.Signal{syscall.SIGSTOP, syscall.SIGCONT, syscall.SIGKILL}) {
		t.Run(fmt.Sprint(order), func(t *testing.T) {
			t.Parallel()
			c := spawn(t, "trap '' TERM; touch ready; while :; do sleep 600; done", waitLong)
			pid := c.taskPID()
			for _, s := range append([]syscall.Signal{syscall.SIGTERM}, order...) {
				if err := syscall.Kill(pid, s); !errors.Is(err, syscall.ESRCH) { // the shim has reaped a killed task
					must(t, err)
				}
				if s != syscall.SIGKILL {
					c.send(s)
				}
			}
			c.send(syscall.SIGCONT)
			c.requireAgentStopped()
		})
	}
}

func TestShim_SignalWithoutShutdownIsAFault(t *testing.T) {
	soon := func(s *shim.Spec) { s.ShutdownWait = time.Millisecond }
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL, syscall.SIGSEGV} {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			c := spawn(t, "touch ready; exec sleep 600", soon)
			c.endTask(c.taskPID(), s)
			if e := c.awaitExit().Exit; e == nil || e.StopReason != "" || e.Signal != int(s) {
				t.Errorf("exit = %+v, want signal %v without a stop reason", e, s)
			}
		})
	}
	t.Run("sent by the task to itself, with the default wait", func(t *testing.T) {
		t.Parallel()
		if e := spawn(t, "kill -TERM $$").awaitExit().Exit; e == nil || e.StopReason != "" || e.Signal != int(syscall.SIGTERM) {
			t.Errorf("exit = %+v, want SIGTERM without a stop reason", e)
		}
	})
}

// Only an end by SIGTERM waits: this shim would not exit in time otherwise.
func TestShim_OtherEndsDoNotWait(t *testing.T) {
	for script, code := range map[string]int{"exit 0": 0, "exit 1": 1, "kill -KILL $$": 137} {
		if e := spawn(t, script, waitLong).awaitExit().Exit; e == nil || e.Code != code || e.StopReason != "" {
			t.Errorf("%s: exit = %+v, want code %d", script, e, code)
		}
	}
}

func TestShim_StopOnRequestKeepsItsReasonAtShutdown(t *testing.T) {
	c := spawn(t, "trap 'touch asked' TERM; touch ready; while [ ! -e go ]; do sleep 0.01; done; exit 143", waitLong)
	pid := c.taskPID()
	must(t, shim.ControlRequest{Stop: wire.ReasonStopped, Grace: time.Hour}.Send(filepath.Join(c.dir, "shim")))
	c.awaitFile("asked")
	c.send(syscall.SIGTERM)
	must(t, os.WriteFile(filepath.Join(c.dir, "work", "go"), nil, 0o600))
	c.awaitExited(pid)
	if e := c.awaitExit().Exit; e == nil || e.StopReason != wire.ReasonStopped {
		t.Errorf("exit = %+v, want Stopped", e)
	}
}

// SIGTERM may reach a shim at any moment after its fork. Before it handles signals, it is killed by
// it, which the agent does not report as a fault.
func TestShim_SIGTERMAtAnyMomentIsNoFault(t *testing.T) {
	for range 20 {
		c := spawn(t, "exec sleep 600")
		c.send(syscall.SIGTERM)
		if e := c.awaitExit().Exit; e != nil && e.StopReason != wire.ReasonAgentStopped {
			t.Errorf("exit = %+v, want AgentStopped, or none", e)
		}
	}
}

func encodeSetUp(t *testing.T, w setup.Work) *shim.SetUp {
	t.Helper()
	s, err := w.Encode()
	must(t, err)
	return s
}

// The set-up of a task is a process of its own, which SIGTERM may end before it handles signals.
func TestShim_ShutdownDuringSetUpIsNoFault(t *testing.T) {
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		t.Run(s.String(), func(t *testing.T) {
			requested := make(chan struct{}, 1)
			server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				requested <- struct{}{}
				<-r.Context().Done()
			}))
			defer server.Close()
			c := spawn(t, "touch ready", waitLong, func(s *shim.Spec) {
				s.SetUp = encodeSetUp(t, setup.Work{Artifacts: []artifact.Request{{Source: server.URL + "/a"}}})
			})
			<-requested
			children := proc.ListDescendants(c.pid)
			if len(children) != 1 {
				t.Fatalf("processes below the shim: %v, want the set-up", children)
			}
			c.send(syscall.SIGSTOP)
			c.endTask(children[0], s)
			c.send(syscall.SIGTERM)
			c.send(syscall.SIGCONT)
			if e := c.awaitExit(); e.Exit == nil || e.Exit.StopReason != wire.ReasonAgentStopped || e.Exit.Error != "" || e.MayHaveStarted {
				t.Errorf("state = %+v, exit = %+v, want AgentStopped before the start", e, e.Exit)
			}
		})
	}
}
