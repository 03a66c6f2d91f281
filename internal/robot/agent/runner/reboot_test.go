package runner

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/agent/journal"
	"k8s4r.io/k8s4r/internal/robot/shim"
)

// rebootRobot replaces the runner by one of the next boot, without contact. The shims have left this state.
func (x *restartTest) rebootRobot(left shim.State) {
	x.t.Helper()
	x.left, x.offline = left, true
	x.wall, x.boot = x.wall.Add(time.Minute), 20*time.Second
	x.bootID += "next"
	x.restartAgent()
	x.round()
}

// cutShort is what a shim leaves whose task ran at a power cut.
var cutShort = shim.State{MayHaveStarted: true, Started: &shim.Started{At: time.Unix(1_000_000, 0)}}

func onReboot(value string) func(*wire.Task) {
	return func(t *wire.Task) { t.Spec.RestartPolicy.OnReboot = value }
}

func withoutPolicy(t *wire.Task) { t.Spec.RestartPolicy = nil }

func TestReboot_FollowsThePolicy(t *testing.T) {
	service := ofType("service")
	for name, test := range map[string]struct {
		change []func(*wire.Task)
		starts int // at once, without contact
		waits  time.Duration
	}{
		"a batch task with restarts":          {starts: 1},
		"a batch task without a policy":       {change: []func(*wire.Task){withoutPolicy}},
		"a batch task without restarts":       {change: []func(*wire.Task){restarting(0, 0)}},
		"one that is to be restarted":         {change: []func(*wire.Task){restarting(0, 0), onReboot("restart")}, starts: 1},
		"one that is to be reported":          {change: []func(*wire.Task){onReboot("report")}},
		"a service":                           {change: []func(*wire.Task){service}, starts: 1},
		"a service without a policy":          {change: []func(*wire.Task){service, withoutPolicy}, starts: 1},
		"a service without restarts":          {change: []func(*wire.Task){service, restarting(0, 0)}, starts: 1},
		"a service that is to be reported":    {change: []func(*wire.Task){service, onReboot("report")}},
		"a system task":                       {change: []func(*wire.Task){ofType("system"), withoutPolicy}, starts: 1},
		"a system task that is to report":     {change: []func(*wire.Task){ofType("system"), onReboot("report")}},
		"an init task of a system job":        {change: []func(*wire.Task){ofType("sysbatch"), withoutPolicy}, starts: 1},
		"an init task that may not restart":   {change: []func(*wire.Task){ofType("sysbatch"), restarting(0, 0)}},
		"an index of an array":                {change: []func(*wire.Task){func(t *wire.Task) { t.Spec.Array = &wire.TaskArray{Index: new(int32(3))} }}},
		"a service beyond its self-stop time": {change: []func(*wire.Task){service, func(t *wire.Task) { t.Spec.StopOnRobotAfter = wire.Duration(time.Hour) }}},
	} {
		t.Run(name, func(t *testing.T) {
			x := runningTest(t, append([]func(*wire.Task){restarting(2, 10*time.Second)}, test.change...)...)
			x.rebootRobot(cutShort)
			x.requireStarts("after the reboot", test.starts)
			if test.starts > 0 {
				requireSecondRun(x)
				return
			}
			end := x.lastReport()
			wantReason := wire.ReasonRobotRebooted
			if x.task.Spec.StopOnRobotAfter > 0 {
				wantReason = wire.ReasonSelfStopped
			}
			if !end.IsTerminal() || end.Reason != wantReason || !wire.IsWithoutFault(end.Reason) || len(x.live) > 0 {
				t.Errorf("end %+v with %d live tasks", end, len(x.live))
			}
		})
	}
}

// The next run is due already when its wait is computed.
func TestReboot_WaitIsNotNegative(t *testing.T) {
	x := newRestartTest(t, restarting(2, 10*time.Second))
	x.dispatch(1)
	x.begin()
	x.tick = time.Microsecond
	x.rebootRobot(cutShort)
	x.requireStarts("after the reboot", 1)
	if e, _ := x.journal.Latest("t1"); e.LastEnd.Restart.Wait < 0 {
		t.Errorf("the journal has a wait of %v", e.LastEnd.Restart.Wait)
	}
}

// requireSecondRun checks the run that has been started after a reboot during the first one.
func requireSecondRun(x *restartTest) {
	x.t.Helper()
	if got := x.live["t1"].runNumber(); got != 2 || x.shims.journaled[0] != 2 {
		x.t.Errorf("run %d starts, and the journal has %v", got, x.shims.journaled)
	}
	if got, want := x.shims.specs[0].LogLine, "run 2 starts, because the robot was restarted during run 1"; got != want {
		x.t.Errorf("the log has %q, want %q", got, want)
	}
	if got := x.shims.specs[0].LogGap; got != powerCutGap {
		x.t.Errorf("the log has a gap of %d bytes after a power cut, want %d", got, powerCutGap)
	}
	x.begin()
	x.pass(reportPause)
	s := x.lastReport()
	if s.State != wire.ReportRunning || s.Run != 2 || s.Attempt != 1 || len(s.Runs) != 2 || s.Runs[0].Reason != wire.ReasonRobotRebooted {
		x.t.Errorf("report %+v, want the second run after one that ended with its boot", s)
	}
}

// The restart counts like any other, so a task that takes its robot down ends some time.
func TestReboot_CountsGoOn(t *testing.T) {
	x := runningTest(t, restarting(3, 10*time.Second))
	x.end(shim.Exit{Code: 3})
	x.pass(10 * time.Second)
	for reboots := range int32(2) {
		x.begin()
		x.rebootRobot(cutShort)
		x.requireStarts("after a reboot", 1)
		if got := x.live["t1"].restarts; got.count().Restarts != reboots+2 || got.run != int64(reboots)+3 {
			t.Fatalf("restart %d, run %d after reboot %d", got.count().Restarts, got.run, reboots+1)
		}
	}
	x.begin()
	x.rebootRobot(cutShort)
	x.requireStarts("after the last restart is used up", 0)
	x.requireEnd(wire.ReasonRobotRebooted, 4)
}

// A policy without restarts does not count those after a reboot, which is no failure. They have numbers, which
// end some time.
func TestReboot_WithoutRestartsIsNotCounted(t *testing.T) {
	x := newRestartTest(t, ofType("service"), restarting(0, 0))
	x.dispatch(1)
	for run := int64(2); run <= 12; run++ {
		x.begin()
		x.rebootRobot(cutShort)
		x.requireStarts("after a reboot", 1)
		if got := x.live["t1"].restarts; got.run != run || got.count().Restarts != 0 || x.shims.journaled[0] != run {
			t.Fatalf("run %d with %d restarts, and run %d in the journal; want run %d, and none", got.run, got.count().Restarts, x.shims.journaled[0], run)
		}
	}
	must(t, x.journal.Append(journal.Record{Kind: journal.Run, UID: "t1", Attempt: 1, Run: wire.MaxRunNumber, BootID: x.bootID}))
	x.rebootRobot(cutShort)
	x.requireStarts("after the run with the highest number", 0)
	x.requireEnd(wire.ReasonRobotRebooted, wire.MaxRunNumber)
}

// A service whose restarts are used up waits as its policy defines, and ends without fault if contact
// returns first.
func TestReboot_WithUsedUpRestarts(t *testing.T) {
	service := func(t *wire.Task) {
		t.Spec.Type = "service"
		t.Spec.RestartPolicy = &wire.RestartPolicy{Attempts: 1, Interval: wire.Duration(10 * time.Minute), Mode: "fail"}
	}
	setUp := func(t *testing.T) *restartTest {
		x := runningTest(t, service)
		x.end(shim.Exit{Code: 3})
		x.pass(time.Second)
		x.begin()
		x.rebootRobot(cutShort)
		x.requireStarts("before the next interval", 0)
		return x
	}
	t.Run("it waits for the next interval", func(t *testing.T) {
		x := setUp(t)
		x.pass(9 * time.Minute)
		x.requireStarts("in the next interval", 1)
	})
	t.Run("contact ends the wait", func(t *testing.T) {
		x := setUp(t)
		x.SetConnected(true)
		x.round()
		x.requireEnd(wire.ReasonRobotRebooted, 2)
	})
}

func TestReboot_DuringAWait(t *testing.T) {
	t.Run("it goes on", func(t *testing.T) {
		x := waitingTest(t, func(t *wire.Task) { t.Spec.RestartPolicy.Delay = wire.Duration(2 * time.Minute) })
		x.rebootRobot(shim.State{})
		x.requireStarts("a minute later, after the reboot", 0)
		x.pass(time.Minute)
		x.requireStarts("after the delay", 1)
		if got := x.live["t1"].restarts; got.run != 2 || got.count().Restarts != 1 {
			t.Errorf("run %d, restart %d: the reboot counts", got.run, got.count().Restarts)
		}
	})
	t.Run("it is reported", func(t *testing.T) {
		x := waitingTest(t, onReboot("report"))
		x.rebootRobot(shim.State{})
		x.requireStarts("after the reboot", 0)
		x.requireEnd(wire.ReasonRobotRebooted, 1)
	})
}

// The shim may have recorded an end before the robot went down.
func TestReboot_AfterAKnownEnd(t *testing.T) {
	exit := func(e shim.Exit) shim.State {
		return shim.State{MayHaveStarted: true, Started: cutShort.Started, Exit: &e}
	}
	for name, test := range map[string]struct {
		change       func(*wire.Task)
		exit         shim.Exit
		starts       int
		waits        bool
		reason       string
		restartCount int32
	}{
		"a stop of the robot": {exit: shim.Exit{Code: 143, StopReason: wire.ReasonAgentStopped}, starts: 1, restartCount: 1},
		"a failure":           {exit: shim.Exit{Code: 3}, waits: true, restartCount: 1},
		"success":             {exit: shim.Exit{}},
		"a cancel":            {exit: shim.Exit{Code: 143, StopReason: wire.ReasonStopped}, reason: wire.ReasonStopped},
		// It waited for its next run when the robot went down, although the journal does not have that.
		"a failure that is to be reported": {change: onReboot("report"), exit: shim.Exit{Code: 3}, reason: wire.ReasonRobotRebooted},
		"success of a task to be reported": {change: onReboot("report"), exit: shim.Exit{}},
	} {
		t.Run(name, func(t *testing.T) {
			change := []func(*wire.Task){restarting(2, 10*time.Second)}
			if test.change != nil {
				change = append(change, test.change)
			}
			x := runningTest(t, change...)
			x.rebootRobot(exit(test.exit))
			x.requireStarts("after the reboot", test.starts)
			if test.starts == 0 && !test.waits {
				x.requireEnd(test.reason, 1)
				return
			}
			if test.starts > 0 && x.shims.specs[0].LogGap != 0 {
				t.Errorf("the log has a gap of %d bytes after an orderly end", x.shims.specs[0].LogGap)
			}
			if got := x.live["t1"]; got.isWaiting() != test.waits || got.restarts.count().Restarts != test.restartCount {
				t.Errorf("waits %t, restart %d", got.isWaiting(), got.restarts.count().Restarts)
			}
		})
	}
}

// A robot shuts down, and its agent sees the ends of the tasks before it is gone itself.
func TestReboot_AfterAShutdown(t *testing.T) {
	stopped := shim.Exit{Code: 143, StopReason: wire.ReasonAgentStopped}
	setUp := func(t *testing.T, change ...func(*wire.Task)) *restartTest {
		x := runningTest(t, append([]func(*wire.Task){ofType("service"), restarting(2, time.Second)}, change...)...)
		x.end(stopped)
		return x
	}
	t.Run("the task starts with the robot", func(t *testing.T) {
		x := setUp(t)
		x.pass(shutdownWait - 1)
		x.requireStarts("while the robot goes down", 1)
		x.rebootRobot(shim.State{})
		x.requireStarts("at boot", 1)
		if gap := x.shims.specs[0].LogGap; gap != 0 {
			t.Errorf("the log has a gap of %d bytes", gap)
		}
		if got := x.live["t1"].restarts; got.run != 2 || got.count().Restarts != 1 {
			t.Errorf("run %d, restart %d", got.run, got.count().Restarts)
		}
	})
	t.Run("or without a shutdown", func(t *testing.T) {
		x := setUp(t)
		x.pass(shutdownWait)
		x.requireStarts("after the wait", 2)
	})
	usedUp := func(t *testing.T) *restartTest {
		x := runningTest(t, ofType("service"), restarting(1, time.Second))
		x.end(shim.Exit{Code: 1})
		x.pass(time.Second)
		x.begin()
		x.end(stopped)
		x.requireStarts("while the robot goes down", 2)
		return x
	}
	t.Run("also with a policy that is used up", func(t *testing.T) {
		x := usedUp(t)
		x.pass(shutdownWait - 1)
		x.rebootRobot(shim.State{})
		x.pass(time.Minute)
		x.requireStarts("in the field", 1)
	})
	t.Run("unless contact goes on", func(t *testing.T) {
		x := usedUp(t)
		x.pass(shutdownWait)
		x.requireEnd(wire.ReasonAgentStopped, 2)
	})
	t.Run("not if it is to be reported", func(t *testing.T) {
		setUp(t, onReboot("report")).requireEnd(wire.ReasonAgentStopped, 1)
	})
	t.Run("not if the agent ends its tasks", func(t *testing.T) {
		x := runningTest(t, ofType("service"), restarting(2, time.Second))
		x.stopAllAttempts(time.Second)
		x.end(stopped)
		x.requireEnd(wire.ReasonAgentStopped, 1)
	})
}

// An agent that crashes within a boot knows of no reboot.
func TestReboot_IsNotARestartOfTheAgent(t *testing.T) {
	x := runningTest(t, ofType("service"), restarting(2, 10*time.Second))
	x.left, x.offline = cutShort, true
	x.restartAgent()
	x.round()
	x.requireStarts("after the crash", 0)
	x.requireEnd(wire.ReasonAgentRestarted, 1)
}

// A process of this boot may have the PID of one of an earlier boot.
func TestReboot_KillsNoProcessByItsPID(t *testing.T) {
	x := runningTest(t, restarting(2, 10*time.Second))
	must(t, x.journal.Close())
	x.bootID = "next"
	x.left = shim.State{MayHaveStarted: true, Started: &shim.Started{Process: shim.Process{PID: 4711, StartTicks: 12}}}
	x.startAgent()
	for _, l := range x.leftovers {
		if l.PID != 0 {
			t.Errorf("looks for a process of an earlier boot: %+v", l)
		}
	}
	if len(x.leftovers) == 0 {
		t.Error("looks for no leftovers")
	}
}

// replica returns tasks of one replica: two daemons as init tasks, and two tasks.
func replica() (all []wire.Task) {
	for i, uid := range []string{"d1", "d2", "m1", "m2"} {
		all = append(all, shell(uid, "exit 0", ofType("service"), onDisk(wire.EphemeralDisk{}, "g"), func(t *wire.Task) { t.Spec.Stage = int32(min(i+1, 3)) }))
	}
	return all
}

// dispatchAll starts tasks in the order of the manager.
func (x *restartTest) dispatchAll(all []wire.Task) {
	x.t.Helper()
	for _, task := range all {
		x.round(wire.Dispatch{Action: wire.ActionCreate, Task: task, Attempt: 1, Epoch: 1})
		x.begin()
	}
}

// startedTasks returns the UIDs of the tasks whose shims were started, in order. Those of one stage are
// sorted.
func (x *restartTest) startedTasks() (uids []string) {
	for _, s := range x.shims.specs {
		uids = append(uids, strings.Split(strings.TrimPrefix(s.Dir, x.dir+"/tasks/"), "/")[0])
	}
	if len(uids) > 2 {
		slices.Sort(uids[2:])
	}
	return uids
}

func TestReboot_StartsAReplicaInItsOrder(t *testing.T) {
	x := newRestartTest(t)
	x.dispatchAll(replica())
	x.rebootRobot(cutShort)
	for i, want := range []string{"[d1]", "[d1 d2]", "[d1 d2 m1 m2]"} {
		if got := fmt.Sprint(x.startedTasks()); got != want {
			t.Fatalf("step %d: %s were started, want %s", i, got, want)
		}
		if wait, _ := x.untilRestart(); i < 2 && wait == 0 {
			t.Error("the agent looks again at once, and nothing has happened")
		}
		x.round()
		if got := fmt.Sprint(x.startedTasks()); got != want {
			t.Fatalf("step %d: %s were started before the process of the last one runs, want %s", i, got, want)
		}
		x.begin()
		x.round()
	}
}

// An agent that crashes before all tasks were started keeps the order.
func TestReboot_NextAgentKeepsTheOrder(t *testing.T) {
	x := newRestartTest(t)
	x.dispatchAll(replica())
	x.left, x.offline, x.bootID = cutShort, true, "next"
	x.restartAgent() // it plans the runs, and starts none
	x.restartAgent()
	x.round()
	if got := fmt.Sprint(x.startedTasks()); got != "[d1]" {
		t.Errorf("%s were started, want the first daemon alone", got)
	}
}

func TestReboot_OrderIsThatOfOneReplica(t *testing.T) {
	for name, change := range map[string]func(all []wire.Task){
		"tasks of other replicas do not wait": func(all []wire.Task) {
			for i := range all {
				all[i].Metadata.Labels = map[string]string{wire.LabelTaskIndex: fmt.Sprint(i)}
			}
		},
		"tasks of a manager that names no stage do not wait": func(all []wire.Task) {
			for i := range all {
				all[i].Spec.Stage = 0
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := newRestartTest(t)
			all := replica()
			change(all)
			x.dispatchAll(all)
			x.rebootRobot(cutShort)
			x.requireStarts("at once", len(all))
		})
	}
}

// An earlier manager has created the first daemon, and a later one the other tasks.
func TestReboot_TaskWithoutAStageIsNotAwaited(t *testing.T) {
	x := newRestartTest(t)
	all := replica()
	all[0].Spec.Stage = 0
	x.dispatchAll(all)
	x.rebootRobot(cutShort)
	got := x.startedTasks()
	if slices.Sort(got); fmt.Sprint(got) != "[d1 d2]" {
		t.Errorf("%s were started, want both daemons", got)
	}
}

// A daemon that fails while the tasks after it have not started must run again before they do.
func TestReboot_DaemonThatStartsAgainIsAwaited(t *testing.T) {
	x := newRestartTest(t)
	all := replica()
	all[0].Spec.RestartPolicy = &wire.RestartPolicy{Attempts: 9}
	x.dispatchAll(all)
	x.rebootRobot(cutShort)
	first := x.shims.last
	x.begin()
	x.round()
	second := x.shims.last // of the next daemon, whose process does not run yet
	x.shims.last = first
	x.end(shim.Exit{Code: 1})
	x.pass(time.Second)
	again := x.shims.last
	x.shims.last = second
	x.begin()
	x.round()
	x.requireStarts("while the first daemon is about to run again", 3)
	x.shims.last = again
	x.begin()
	x.round()
	x.requireStarts("once it runs", 5)
}

func TestReboot_RangeNamesTheIndexThatRan(t *testing.T) {
	a := newArrayRange(&wire.TaskArray{Indexes: "0-3"})
	a.running, a.report = new(int32(2)), newArrayReport(nil)
	if got := a.describeEnd(rebootedStatus(wire.Status{})).Message; !strings.Contains(got, "The robot was restarted; index 2 was running") {
		t.Errorf("message %q", got)
	}
}

// What an earlier stage does not start again is not waited for.
func TestReboot_StageThatHasEndedIsNotAwaited(t *testing.T) {
	x := newRestartTest(t)
	all := replica()
	all[0].Spec.RestartPolicy = &wire.RestartPolicy{OnReboot: "report"}
	x.dispatchAll(all)
	x.rebootRobot(cutShort)
	if got := fmt.Sprint(x.startedTasks()); got != "[d2]" {
		t.Errorf("%s were started, want the second daemon alone", got)
	}
}

// A task that comes after a batch init task waits for its end.
func TestReboot_InitTaskMustEnd(t *testing.T) {
	x := newRestartTest(t)
	all := replica()[:2]
	all[0].Spec.Type, all[0].Spec.RestartPolicy = "", &wire.RestartPolicy{Attempts: 1}
	x.dispatchAll(all)
	x.rebootRobot(cutShort)
	x.begin()
	x.round()
	if got := fmt.Sprint(x.startedTasks()); got != "[d1]" {
		t.Fatalf("%s were started while the init task runs", got)
	}
	x.end(shim.Exit{})
	x.round()
	if got := fmt.Sprint(x.startedTasks()); got != "[d1 d2]" {
		t.Errorf("%s were started after the init task has completed", got)
	}
}

// Records of an earlier agent may have no boot.
func TestReboot_UnknownBootIsNone(t *testing.T) {
	x := newRestartTest(t, ofType("service"), restarting(2, time.Second))
	must(t, x.journal.Append(
		journal.Record{Kind: journal.Accepted, UID: "t1", Attempt: 1, At: x.wall, Task: &x.task},
		journal.Record{Kind: journal.Run, UID: "t1", Attempt: 1, Run: 1},
	))
	x.left, x.offline = cutShort, true
	x.restartAgent()
	x.requireEnd(wire.ReasonAgentRestarted, 1)
}
