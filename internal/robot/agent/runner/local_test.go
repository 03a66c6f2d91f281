package runner

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/shim"
)

const person = "alice (uid 1000)"

// operate carries out a request of a person about t1, and returns what the agent answers.
func (x *restartTest) operate(action LocalAction) (string, error) {
	x.t.Helper()
	reply := make(chan localReply, 1)
	x.round(LocalRequest{Action: action, UID: "t1", By: person, Reason: "a broken arm", reply: reply})
	answer := <-reply
	return answer.message, answer.err
}

func (x *restartTest) mustOperate(action LocalAction) {
	x.t.Helper()
	if _, err := x.operate(action); err != nil {
		x.t.Fatalf("%s: %v", action, err)
	}
}

// requireAnswer checks that a request is carried out with an answer that begins with this text.
func (x *restartTest) requireAnswer(action LocalAction, want string) {
	x.t.Helper()
	if message, err := x.operate(action); err != nil || !strings.HasPrefix(message, want) {
		x.t.Errorf("%s: %q, %v, want an answer that begins with %q", action, message, err, want)
	}
}

// requireRefusal checks that a request is refused with this text.
func (x *restartTest) requireRefusal(action LocalAction, want string) {
	x.t.Helper()
	if message, err := x.operate(action); err == nil || !strings.Contains(err.Error(), want) {
		x.t.Errorf("%s: %q, %v, want an error with %q", action, message, err, want)
	}
}

func requirePerson(t *testing.T, s wire.Status) {
	t.Helper()
	if !strings.Contains(s.Message, person) {
		t.Errorf("message %q does not name the person", s.Message)
	}
}

func TestLocalStop_EndsAttemptWithoutFault(t *testing.T) {
	x := runningTest(t, restarting(2, time.Second))
	x.mustOperate(LocalStop)
	if len(x.shims.stops) != 1 || x.shims.stops[0] != wire.ReasonStoppedAtRobot {
		t.Fatalf("orders to stop: %v", x.shims.stops)
	}
	x.end(shim.Exit{Code: 143, StopReason: wire.ReasonStoppedAtRobot})
	requirePerson(t, x.requireEnd(wire.ReasonStoppedAtRobot, 1))
	if !wire.IsWithoutFault(wire.ReasonStoppedAtRobot) {
		t.Error("the end counts as a failure")
	}
	if stopped := x.local.Read().FindStopped("t1"); stopped == nil || stopped.By != person || stopped.Attempt != 1 || stopped.Name != "task-t1" || !stopped.Since.Equal(x.wall) || x.localChanges != 1 {
		t.Errorf("the local state is %+v after %d changes", stopped, x.localChanges)
	}
}

func TestLocalStop_LetsNoAttemptStartUntilRestart(t *testing.T) {
	x := runningTest(t, restarting(2, time.Second))
	x.mustOperate(LocalStop)
	x.end(shim.Exit{Code: 143, StopReason: wire.ReasonStoppedAtRobot})
	x.restartAgent() // as a reboot does
	x.dispatch(2)
	x.requireStarts("a task that was stopped at the robot", 0)
	requirePerson(t, x.requireEnd(wire.ReasonStoppedAtRobot, 0))
	x.mustOperate(LocalRestart)
	x.dispatch(3)
	x.requireStarts("after the restart", 1)
	x.begin()
	if s := x.lastReport(); s.State != wire.ReportRunning || s.Attempt != 3 {
		t.Errorf("report %+v", s)
	}
}

func TestLocalStop_EndsWaitAtOnce(t *testing.T) {
	x := waitingTest(t)
	x.mustOperate(LocalStop)
	requirePerson(t, x.requireEnd(wire.ReasonStoppedAtRobot, 1))
	x.pass(time.Minute)
	x.requireStarts("after the stop", 1)
}

// The attempt has ended, so another one needs the server. The technician must know that nothing starts before.
func TestLocalStop_AnswersSayWhatFollows(t *testing.T) {
	for name, test := range map[string]struct {
		change        func(*restartTest)
		stop, restart string // ends of the answers
	}{
		"with contact":    {func(*restartTest) {}, "until k8s4r-agent restart", "when the server sends it again, unless another robot runs it now"},
		"without contact": {func(x *restartTest) { x.SetConnected(false) }, "until k8s4r-agent restart and the next contact", "when the server sends it again, at the next contact"},
		"in maintenance":  {func(x *restartTest) { x.mustOperate(LocalMaintenanceOn) }, "until k8s4r-agent restart", "when the server sends it again, after the maintenance"},
	} {
		t.Run(name, func(t *testing.T) {
			x := waitingTest(t)
			test.change(x)
			for _, step := range []struct {
				action LocalAction
				want   string
			}{{LocalStop, test.stop}, {LocalRestart, test.restart}} {
				if got, err := x.operate(step.action); err != nil || !strings.HasSuffix(got, step.want) {
					t.Errorf("%s: %q, %v, want an answer that ends with %q", step.action, got, err, step.want)
				}
			}
			x.pass(time.Minute)
			x.requireStarts("without the server", 1)
		})
	}
}

// The agent is killed between the write of the state and the stop of the task.
func TestLocalStop_IsCarriedOutByTheNextAgent(t *testing.T) {
	hold := wire.LocalState{StoppedTasks: []wire.StoppedTask{{UID: "t1", By: person}}}
	t.Run("while the task waits for its next run", func(t *testing.T) {
		x := waitingTest(t)
		must(t, x.local.Write(hold))
		x.restartAgent()
		requirePerson(t, x.requireEnd(wire.ReasonStoppedAtRobot, 1))
	})
	t.Run("while it runs", func(t *testing.T) {
		x := runningTest(t, restarting(2, time.Second))
		must(t, x.local.Write(hold))
		x.alive = x.shims.last
		x.restartAgent()
		if len(x.shims.stops) != 1 || x.shims.stops[0] != wire.ReasonStoppedAtRobot {
			t.Errorf("orders to stop: %v", x.shims.stops)
		}
	})
}

func TestLocalStop_RefusesMoreTasksThanTheMaximum(t *testing.T) {
	x := runningTest(t, restarting(2, time.Second))
	var all wire.LocalState
	for i := range wire.MaxStoppedTasks {
		all.StoppedTasks = append(all.StoppedTasks, wire.StoppedTask{UID: fmt.Sprint("other-", i)})
	}
	must(t, x.local.Write(all))
	x.requireRefusal(LocalStop, "256 tasks are stopped at this robot")
	if len(x.shims.stops) > 0 {
		t.Error("the task was stopped")
	}
}

func TestLocalActions_NeedLiveTask(t *testing.T) {
	x := newRestartTest(t)
	x.requireRefusal(LocalStop, "has ended")
	x.requireRefusal(LocalRestart, "has ended")
}

func TestLocalRestart_StartsNextRunWithoutCounting(t *testing.T) {
	x := runningTest(t, restarting(1, 10*time.Second))
	for run := int64(1); run <= 3; run++ { // more than the policy allows
		x.mustOperate(LocalRestart)
		if last := x.shims.stops[len(x.shims.stops)-1]; last != wire.ReasonRestartedAtRobot {
			t.Fatalf("the task was stopped for %s", last)
		}
		x.end(shim.Exit{Code: 143, StopReason: wire.ReasonRestartedAtRobot})
		requirePerson(t, x.Runner.live["t1"].lastReport)
		x.pass(time.Second)
		x.requireStarts("after a restart", int(run)+1)
		x.begin()
		x.pass(time.Second)
	}
	if e, _ := x.journal.Latest("t1"); e.LastEnd == nil || e.LastEnd.Restart.Restarts != 0 {
		t.Errorf("the journal counts %+v", e.LastEnd)
	}
	// A failure of its own later names no person.
	x.end(shim.Exit{Code: 1})
	if s := x.lastReport(); strings.Contains(s.Message, person) {
		t.Errorf("message %q", s.Message)
	}
}

func TestLocalRestart_EndsWaitForNextRun(t *testing.T) {
	x := waitingTest(t)
	x.mustOperate(LocalRestart)
	x.requireStarts("after the restart", 2)
}

// The next agent does not have the secret, and the robot has no contact.
func TestLocalRestart_KeepsRunThatLacksSecretsForTheNext(t *testing.T) {
	x := newRestartTest(t, restarting(2, 10*time.Second), withSecret)
	x.dispatchSecrets(wire.Secrets{"PASSWORD": password})
	x.begin()
	x.alive, x.offline = x.shims.last, true
	x.restartAgent()
	x.requireRefusal(LocalRestart, "the task was not restarted: its next run cannot start before the server has sent the values of its secretEnv")
	x.requireStops()
}

func TestLocalRestart_NamesWhatTheNextRunWaitsFor(t *testing.T) {
	t.Run("secrets", func(t *testing.T) {
		x := newRestartTest(t, restarting(2, 10*time.Second), withSecret)
		x.dispatchSecrets(wire.Secrets{"PASSWORD": password})
		x.begin()
		x.end(shim.Exit{Code: 3})
		x.offline = true
		x.restartAgent()
		x.requireAnswer(LocalRestart, "its next run cannot start before the server has sent the values of its secretEnv")
		x.requireStarts("without the secret", 0)
	})
	t.Run("an earlier stage", func(t *testing.T) {
		x := newRestartTest(t, restarting(2, 10*time.Second), onDisk(wire.EphemeralDisk{}, "g1"), func(t *wire.Task) { t.Spec.Stage = 2 })
		x.dispatch(1)
		x.begin()
		first := x.task
		first.Metadata.UID, first.Spec.Stage = "t0", 1
		x.round(wire.Dispatch{Action: wire.ActionCreate, Task: first, Attempt: 1, Epoch: 2})
		x.rebootRobot(cutShort)
		x.requireAnswer(LocalRestart, "its next run starts after the tasks of the earlier stages of its replica")
	})
	t.Run("nothing", func(t *testing.T) {
		waitingTest(t).requireAnswer(LocalRestart, "its next run starts now")
	})
}

func TestMaintenance_LetsNothingStart(t *testing.T) {
	x := waitingTest(t)
	x.mustOperate(LocalMaintenanceOn)
	x.requireRefusal(LocalMaintenanceOn, "in maintenance already, by "+person+": a broken arm")
	x.requireRefusal(LocalRestart, "maintenance off")
	x.pass(time.Hour)
	x.requireStarts("in maintenance", 1)
	if wait, isNeeded := x.untilRestart(); !isNeeded || wait != maxRestartSleep {
		t.Errorf("the runner looks again in %v, %t", wait, isNeeded)
	}
	if s := x.lastReport(); s.Reason != wire.ReasonRestarting || !strings.Contains(s.Message, "a broken arm") || !strings.Contains(s.Message, person) {
		t.Errorf("report %+v", s)
	}
	x.round(wire.Dispatch{Action: wire.ActionCreate, Task: shell("t2", "exit 0"), Attempt: 1, Epoch: 2})
	if s := x.lastReport(); s.TaskUID != "t2" || s.Reason != wire.ReasonMaintenance || !s.IsTerminal() || !wire.IsWithoutFault(s.Reason) {
		t.Errorf("report about another task %+v", s)
	}
	x.restartAgent()
	x.pass(time.Hour)
	x.requireStarts("in maintenance after a reboot", 0)
	if tasks := x.listLiveTasks(); len(tasks) != 1 || tasks[0].NextRunAt != nil || !strings.Contains(tasks[0].Reason, "maintenance") {
		t.Errorf("tasks %+v", tasks)
	}
	x.mustOperate(LocalMaintenanceOff)
	x.requireStarts("after the maintenance", 1)
}

func TestMaintenance_LetsNothingStartAtBoot(t *testing.T) {
	x := runningTest(t, ofType("service"), restarting(2, time.Second))
	x.mustOperate(LocalMaintenanceOn)
	x.rebootRobot(cutShort)
	x.pass(time.Hour)
	x.requireStarts("in maintenance after a reboot", 0)
	x.mustOperate(LocalMaintenanceOff)
	x.requireStarts("after the maintenance", 1)
}

func TestLocalStop_LetsNothingStartAtBoot(t *testing.T) {
	x := runningTest(t, ofType("service"), restarting(2, time.Second))
	x.mustOperate(LocalStop)
	x.rebootRobot(cutShort) // before its process has ended
	requirePerson(t, x.requireEnd(wire.ReasonStoppedAtRobot, 1))
	x.pass(time.Hour)
	x.requireStarts("after a reboot", 0)
}

func TestMaintenance_LetsGoOnWhatRuns(t *testing.T) {
	x := runningTest(t, restarting(2, time.Second))
	x.mustOperate(LocalMaintenanceOn)
	if len(x.shims.stops) > 0 {
		t.Fatalf("orders to stop: %v", x.shims.stops)
	}
	x.end(shim.Exit{Code: 1})
	x.pass(time.Minute)
	x.requireStarts("in maintenance", 1)
	x.mustOperate(LocalStop) // is possible
	x.requireEnd(wire.ReasonStoppedAtRobot, 1)
}

// The dispatch and the request arrive together, so the run is planned before the maintenance begins.
func TestMaintenance_LetsNoRunStartThatWasPlanned(t *testing.T) {
	for name, change := range map[string]func(*wire.Task){"of a task": restarting(2, time.Second), "of a range": ofRange} {
		t.Run(name, func(t *testing.T) {
			x := newRestartTest(t, change)
			reply := make(chan localReply, 1)
			x.round(
				wire.Dispatch{Action: wire.ActionCreate, Task: x.task, Attempt: 1, Epoch: 1},
				LocalRequest{Action: LocalMaintenanceOn, By: person, Reason: "a broken arm", reply: reply},
			)
			must(t, (<-reply).err)
			x.requireStarts("in maintenance", 0)
			requirePerson(t, x.requireEnd(wire.ReasonMaintenance, 0))
		})
	}
}

func TestMaintenance_StopsSetUpUntilItEnds(t *testing.T) {
	x := newRestartTest(t, restarting(2, time.Second))
	x.dispatch(1) // its shim downloads the artifacts
	x.mustOperate(LocalMaintenanceOn)
	x.requireStops(wire.ReasonMaintenance)
	x.end(shim.Exit{Code: -1, StopReason: wire.ReasonMaintenance})
	x.pass(time.Hour)
	x.requireStarts("in maintenance", 1)
	x.mustOperate(LocalMaintenanceOff)
	x.requireStarts("after the maintenance", 2)
	if n := x.live["t1"].restarts.count().Restarts; n != 0 {
		t.Errorf("the policy counts %d restarts", n)
	}
}

func TestMaintenance_LetsNoFurtherIndexStart(t *testing.T) {
	t.Run("of a range that runs", func(t *testing.T) {
		x := runningTest(t, ofRange)
		x.mustOperate(LocalMaintenanceOn)
		if x.requireStops(); x.shims.pauses != 1 {
			t.Errorf("the shim was asked %d times to start no further index", x.shims.pauses)
		}
	})
	t.Run("of one that is set up", func(t *testing.T) {
		x := newRestartTest(t, ofRange)
		x.dispatch(1)
		x.mustOperate(LocalMaintenanceOn)
		x.requireStops(wire.ReasonMaintenance)
		x.end(shim.Exit{Code: -1, StopReason: wire.ReasonMaintenance})
		requirePerson(t, x.requireEnd(wire.ReasonMaintenance, 0))
	})
}

// The agent is killed between the write of the state and the order to the shim.
func TestMaintenance_IsCarriedOutByTheNextAgent(t *testing.T) {
	x := newRestartTest(t, restarting(2, time.Second))
	x.dispatch(1)
	must(t, x.local.Write(wire.LocalState{Maintenance: &wire.Maintenance{ID: "m1", By: person}}))
	x.alive = x.shims.last
	x.restartAgent()
	x.requireStops(wire.ReasonMaintenance)
}

// requireStops checks for which reasons shims were to stop their tasks.
func (x *restartTest) requireStops(want ...string) {
	x.t.Helper()
	if !slices.Equal(x.shims.stops, want) {
		x.t.Fatalf("orders to stop: %v, want %v", x.shims.stops, want)
	}
}

func ofRange(t *wire.Task) { t.Spec.Array = &wire.TaskArray{Indexes: "0-9"} }

func TestMaintenance_IsUnlockedByItsID(t *testing.T) {
	x := waitingTest(t)
	x.mustOperate(LocalMaintenanceOn)
	id := x.local.Read().Maintenance.ID
	x.round(unlockRequest{"earlier"})
	x.pass(time.Minute)
	x.requireStarts("after a message about another maintenance", 1)
	x.round(unlockRequest{id})
	x.requireStarts("after the unlock", 2)
	if x.localChanges != 2 {
		t.Errorf("%d changes were registered, want 2", x.localChanges)
	}
	x.mustOperate(LocalMaintenanceOn)
	if next := x.local.Read().Maintenance.ID; next == id {
		t.Error("the next maintenance has the same ID")
	}
}

// unwritable is a state that cannot be written.
type unwritable struct{ localStore }

func (unwritable) Write(wire.LocalState) error { return errors.New("the disk is full") }

func TestLocalActions_ChangeNothingThatIsNotOnDisk(t *testing.T) {
	x := runningTest(t, restarting(2, time.Second))
	x.local = unwritable{x.local}
	x.requireRefusal(LocalStop, "the disk is full")
	x.requireRefusal(LocalMaintenanceOn, "the disk is full")
	if len(x.shims.stops) > 0 || x.localChanges > 0 || x.isInMaintenance() {
		t.Errorf("orders to stop: %v, %d changes", x.shims.stops, x.localChanges)
	}
}

// errDeaf is why a shim receives no order.
var errDeaf = errors.New("resource temporarily unavailable")

func TestLocalStop_IsSentAgainToAShimThatWasNotReached(t *testing.T) {
	setUp := func(t *testing.T) *restartTest {
		x := newRestartTest(t, restarting(2, time.Second))
		x.dispatch(1)
		x.begin()
		x.shims.deaf = errDeaf
		x.requireRefusal(LocalStop, "its process runs on, because the order to stop it cannot be sent: "+errDeaf.Error())
		x.requireRefusal(LocalStop, "its process runs on")
		return x
	}
	t.Run("by a later round", func(t *testing.T) {
		x := setUp(t)
		if wait, isNeeded := x.untilRestart(); !isNeeded || wait > maxRestartSleep {
			t.Errorf("the runner looks again in %v, %t", wait, isNeeded)
		}
		x.shims.deaf = nil
		x.round()
		x.round()
		x.requireStops(wire.ReasonStoppedAtRobot)
	})
	t.Run("when the person asks again", func(t *testing.T) {
		x := setUp(t)
		x.shims.deaf = nil
		x.requireAnswer(LocalStop, "stopped; ")
		if len(x.shims.stops) == 0 {
			t.Error("the process was not stopped")
		}
	})
}

func TestLocalStop_IsSentAgainWhileTheProcessRuns(t *testing.T) {
	x := newRestartTest(t, restarting(2, time.Second))
	x.dispatch(1)
	x.begin()
	x.mustOperate(LocalStop)
	x.mustOperate(LocalStop)
	x.requireStops(wire.ReasonStoppedAtRobot, wire.ReasonStoppedAtRobot)
	x.end(shim.Exit{Code: 143, StopReason: wire.ReasonStoppedAtRobot})
	x.requireAnswer(LocalStop, "already stopped")
}

func TestLocalRestart_IsNotDoneLaterIfTheShimWasNotReached(t *testing.T) {
	x := newRestartTest(t, restarting(2, time.Second))
	x.dispatch(1)
	x.begin()
	x.shims.deaf = errDeaf
	x.requireRefusal(LocalRestart, "the task was not restarted")
	x.shims.deaf = nil
	x.round()
	x.requireStops()
}

func TestMaintenance_ReachesShimsLater(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*wire.Task)
		begin  bool // its process runs
		stops  []string
		pauses int
	}{
		"of a task that is set up": {change: restarting(2, time.Second), stops: []string{wire.ReasonMaintenance}},
		"of a range that runs":     {change: ofRange, begin: true, pauses: 1},
	} {
		for isOff, end := range map[bool]string{false: "", true: ", unless the maintenance is off"} {
			t.Run(name+end, func(t *testing.T) {
				x := newRestartTest(t, test.change)
				x.dispatch(1)
				if test.begin {
					x.begin()
				}
				x.shims.deaf = errDeaf
				x.requireRefusal(LocalMaintenanceOn, "maintenance is on, but some processes may still start, because orders cannot be sent; "+
					"the agent tries again: task default/task-t1: "+errDeaf.Error())
				if wait, isNeeded := x.untilRestart(); !isNeeded || wait > maxRestartSleep {
					t.Errorf("the runner looks again in %v, %t", wait, isNeeded)
				}
				stops, pauses := test.stops, test.pauses
				if isOff {
					x.mustOperate(LocalMaintenanceOff)
					stops, pauses = nil, 0
				}
				x.shims.deaf = nil
				x.round()
				x.round()
				if x.requireStops(stops...); x.shims.pauses != pauses {
					t.Errorf("the shim was asked %d times to start no further index, want %d", x.shims.pauses, pauses)
				}
			})
		}
	}
}
