package runner

import (
	"strings"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/shim"
)

// password is in a dispatch and in the environment of the task, and nowhere else.
const password = "hunter2-never-written"

// withSecret gives a task one required and one optional variable from Secrets.
func withSecret(t *wire.Task) {
	t.Spec.SecretEnv = map[string]wire.SecretKey{"PASSWORD": {SecretName: "db", Key: "password"}, "TOKEN": {Optional: true}}
}

// secretsTest returns a test whose task t1 has one run, or one run that has failed. Then its agent was
// restarted.
func secretsTest(t *testing.T, hasFailed bool) *restartTest {
	t.Helper()
	x := newRestartTest(t, restarting(5, time.Second), withSecret)
	x.dispatchSecrets(wire.Secrets{"PASSWORD": password})
	x.begin()
	if hasFailed {
		x.end(shim.Exit{Code: 3})
	} else {
		x.left = shim.State{MayHaveStarted: true, Started: &shim.Started{At: x.wall}, Exit: &shim.Exit{Code: 3, At: x.wall}}
	}
	x.restartAgent()
	return x
}

// outlivedTest returns a test whose agent was restarted during the first run of its task t1.
func outlivedTest(t *testing.T) *restartTest {
	t.Helper()
	x := newRestartTest(t, restarting(5, time.Second), withSecret)
	x.dispatchSecrets(wire.Secrets{"PASSWORD": password})
	x.begin()
	x.alive, x.left = x.shims.last, shim.State{MayHaveStarted: true, Started: &shim.Started{At: x.wall}}
	x.restartAgent()
	return x
}

func (x *restartTest) dispatchSecrets(values wire.Secrets) {
	x.t.Helper()
	x.round(wire.Dispatch{Action: wire.ActionCreate, Task: x.task, Attempt: 1, Epoch: 5, Secrets: values})
}

// list gives the robot the task list of a server.
func (x *restartTest) list(sendsSecrets bool) {
	x.t.Helper()
	x.round(wire.TaskList{Epoch: 5, Refs: []wire.TaskReference{{UID: "t1", Attempt: 1, Started: true}}, SendsSecrets: sendsSecrets})
}

// countRequests returns how many of the reports asked for secrets.
func (x *restartTest) countRequests() (n int) {
	for _, s := range x.reports.all {
		if s.NeedsSecrets {
			n++
		}
	}
	return n
}

func TestSecrets_NextAgentWaitsForThem(t *testing.T) {
	for name, hasFailed := range map[string]bool{"after a run that an agent before has seen end": true, "after a run that has ended without an agent": false} {
		t.Run(name, func(t *testing.T) {
			x := secretsTest(t, hasFailed)
			x.pass(time.Hour)
			x.requireStarts("without contact", 0)
			if tasks := x.listLiveTasks(); len(tasks) != 1 || tasks[0].NextRunAt != nil || !strings.HasSuffix(tasks[0].Reason, "waits for contact, to get the values of its secretEnv") {
				t.Errorf("tasks %+v", tasks)
			}
			wait := x.lastReport()
			if wait.IsTerminal() || wait.Reason != wire.ReasonRestarting || !wait.NeedsSecrets || !strings.Contains(wait.Message, "secretEnv (run 2): exit code 3") {
				t.Fatalf("report %+v, want that the attempt waits for secrets", wait)
			}
			x.list(true)
			x.dispatchSecrets(nil)
			x.dispatchSecrets(wire.Secrets{"TOKEN": "optional"})
			x.requireStarts("without the required value", 0)
			x.dispatchSecrets(wire.Secrets{"PASSWORD": password})
			x.requireStarts("with the values", 1)
			if got := x.shims.specs[0].Env["PASSWORD"]; got != password {
				t.Errorf("PASSWORD of the next run is %q", got)
			}
			if x.lastReport().NeedsSecrets {
				t.Errorf("it asks again: %+v", x.lastReport())
			}
			x.begin()
			x.end(shim.Exit{Code: 4})
			x.pass(time.Minute)
			x.requireStarts("the run after it", 2)
			if got := x.shims.specs[1].Env["PASSWORD"]; got != password {
				t.Errorf("PASSWORD of the run after it is %q", got)
			}
		})
	}
}

// A run that lives longer than the agent gets its secrets before it needs them, so that it is also restarted
// without contact.
func TestSecrets_NextAgentAsksDuringARun(t *testing.T) {
	x := outlivedTest(t)
	x.list(true)
	if s := x.lastReport(); !s.NeedsSecrets || s.State != wire.ReportRunning || s.Reason != "" {
		t.Errorf("report %+v, want that it runs and needs secrets", s)
	}
	x.dispatchSecrets(wire.Secrets{"PASSWORD": "changed"})
	if s := x.lastReport(); s.NeedsSecrets || s.State != wire.ReportRunning {
		t.Errorf("report %+v, want that it runs", s)
	}
	x.SetConnected(false)
	x.end(shim.Exit{Code: 4})
	x.pass(time.Second)
	x.requireStarts("without contact", 1)
	if got := x.shims.specs[0].Env["PASSWORD"]; got != "changed" {
		t.Errorf("PASSWORD of the next run is %q", got)
	}
}

func TestSecrets_AgentAsksAgainWhileThereIsContact(t *testing.T) {
	x := secretsTest(t, true)
	x.list(true)
	start := x.countRequests()
	for range 10 {
		x.pass(secretsPause / 10)
	}
	if got := x.countRequests() - start; got != 1 {
		t.Errorf("asked %d times within a pause, want once", got)
	}
	x.SetConnected(false)
	x.pass(time.Hour)
	if got := x.countRequests() - start; got != 1 {
		t.Errorf("asked %d times without contact", got-1)
	}
	if wait, isNeeded := x.untilRestart(); !isNeeded || wait != maxRestartSleep {
		t.Errorf("the next look is in %s (%t), want %s: an agent that waits must not be busy", wait, isNeeded, maxRestartSleep)
	}
}

// A server of an earlier version sends the secrets of a started attempt to no agent.
func TestSecrets_EarlierServerEndsTheWait(t *testing.T) {
	x := secretsTest(t, true)
	x.list(false)
	if end := x.requireEnd(wire.ReasonAgentRestarted, 1); !strings.Contains(end.Message, "exit code 3") || end.NeedsSecrets {
		t.Errorf("end %+v", end)
	}
}

// The server may be updated before the secrets are needed.
func TestSecrets_LaterServerCounts(t *testing.T) {
	x := outlivedTest(t)
	x.list(false)
	x.list(true)
	x.end(shim.Exit{Code: 3})
	x.dispatchSecrets(wire.Secrets{"PASSWORD": password})
	x.pass(time.Second)
	x.requireStarts("the second run", 1)
}

func TestSecrets_NextAgentDoesNotNeedThemForAnEnd(t *testing.T) {
	x := newRestartTest(t, restarting(1, time.Second), withSecret)
	x.dispatchSecrets(wire.Secrets{"PASSWORD": password})
	x.begin()
	x.left = shim.State{MayHaveStarted: true, Exit: &shim.Exit{}}
	x.restartAgent()
	x.requireEnd("", 1)
}
