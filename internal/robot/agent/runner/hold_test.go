package runner

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/shim"
)

// interrupt sends an order to stop t1 that can wait.
func (x *restartTest) interrupt(windowSeconds int64) {
	x.t.Helper()
	x.round(wire.Dispatch{
		Action: wire.ActionDelete, Task: x.task, Attempt: 1, ReceivedAt: x.boot, Interruption: &wire.Interruption{WindowSeconds: windowSeconds},
	})
}

// requireRefused checks that the last order was refused, and that the attempt goes on.
func (x *restartTest) requireRefused(want string) {
	x.t.Helper()
	s := x.lastReport()
	if s.Refused != want || s.State != wire.ReportRunning || s.Run != 1 || len(x.shims.stops) != 0 || x.live["t1"].stopReason != "" {
		x.t.Fatalf("last report %+v after the orders %v, want a refusal %s of a task that runs", s, x.shims.stops, want)
	}
}

func (x *restartTest) requireStopped() {
	x.t.Helper()
	if len(x.shims.stops) != 1 || x.shims.stops[0] != wire.ReasonStopped {
		x.t.Fatalf("orders to stop: %v", x.shims.stops)
	}
}

func (x *restartTest) holdRobot(action LocalAction) {
	x.t.Helper()
	reply := make(chan localReply, 1)
	x.round(LocalRequest{Action: action, By: person, Reason: "a broken arm", reply: reply})
	if answer := <-reply; answer.err != nil {
		x.t.Fatal(answer.err)
	}
}

func TestHold_RefusesInterruptionUntilRelease(t *testing.T) {
	for name, change := range map[string]func(x *restartTest, on bool){
		"of the task": func(x *restartTest, on bool) {
			x.mustOperate(map[bool]LocalAction{true: LocalHold, false: LocalRelease}[on])
		},
		"of the robot": func(x *restartTest, on bool) {
			x.holdRobot(map[bool]LocalAction{true: LocalHold, false: LocalRelease}[on])
		},
		"released with all": func(x *restartTest, on bool) {
			x.mustOperate(map[bool]LocalAction{true: LocalHold, false: LocalReleaseAll}[on])
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := runningTest(t, restarting(2, time.Second))
			change(x, true)
			x.interrupt(0)
			x.requireRefused(wire.RefusedHeld)
			if x.localChanges != 1 {
				t.Errorf("the agent registered %d times", x.localChanges)
			}
			change(x, false)
			x.interrupt(0)
			x.requireStopped()
		})
	}
}

// A refusal has a number of its own: with that of the report before, or of the one after, an acknowledgment
// could end the repetition of a report that was never written.
func TestHold_RefusalHasItsOwnNumber(t *testing.T) {
	x := runningTest(t, restarting(2, time.Second))
	before := x.lastReport().Seq
	x.mustOperate(LocalHold)
	x.interrupt(0)
	refusal := x.lastReport()
	x.end(shim.Exit{Code: 0})
	if after := x.lastReport(); before >= refusal.Seq || refusal.Seq >= after.Seq || after.Refused != "" {
		t.Errorf("the numbers are %d, %d, %d, the end is %+v", before, refusal.Seq, after.Seq, after)
	}
}

func TestHold_AnswersRepeatedOrdersAtBoundedRate(t *testing.T) {
	x := runningTest(t, restarting(2, time.Second))
	x.mustOperate(LocalHold)
	was := len(x.reports.all)
	for range 10 {
		x.interrupt(0)
	}
	if got := len(x.reports.all) - was; got != 1 {
		t.Errorf("%d reports about orders of one moment", got)
	}
	x.pass(refusalPause)
	x.interrupt(0)
	if got := len(x.reports.all) - was; got != 2 {
		t.Errorf("%d reports after the pause", got)
	}
}

func TestHold_DoesNotKeepOtherOrders(t *testing.T) {
	for name, act := range map[string]func(x *restartTest){
		"a delete that cannot wait": func(x *restartTest) {
			x.round(wire.Dispatch{Action: wire.ActionDelete, Task: x.task, Attempt: 1})
		},
		"a task list that lacks the task": func(x *restartTest) { x.round(wire.TaskList{Epoch: 9}) },
		"a stop that has begun": func(x *restartTest) {
			x.shims.deaf = errors.New("the shim cannot be reached")
			x.round(wire.Dispatch{Action: wire.ActionDelete, Task: x.task, Attempt: 1})
			x.shims.deaf = nil
			x.interrupt(0)
		},
		"an interruption for a newer attempt": func(x *restartTest) {
			x.round(wire.Dispatch{Action: wire.ActionDelete, Task: x.task, Attempt: 2, Interruption: &wire.Interruption{}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := runningTest(t, restarting(2, time.Second))
			x.mustOperate(LocalHold)
			act(x)
			if len(x.shims.stops) == 0 {
				t.Error("the task is not stopped")
			}
		})
	}
}

func TestInterruption_IsRefusedAfterTheWindow(t *testing.T) {
	for _, c := range []struct {
		window  int64
		waited  time.Duration // in the agent, before it acts
		refused bool
	}{
		{0, time.Hour, false},
		{10, 0, false},
		{10, 10*time.Second - 1, false},
		{10, 10 * time.Second, true},
		{wire.MaxWindowSeconds + 1, wire.MaxWindowSeconds * time.Second, true},
		{-1, 0, true},
	} {
		t.Run(fmt.Sprint(c.window, c.waited), func(t *testing.T) {
			x := runningTest(t, restarting(2, time.Second))
			order := wire.Dispatch{Action: wire.ActionDelete, Task: x.task, Attempt: 1, ReceivedAt: x.boot, Interruption: &wire.Interruption{WindowSeconds: c.window}}
			x.boot += c.waited
			x.round(order)
			if !c.refused {
				x.requireStopped()
				return
			}
			x.requireRefused(wire.RefusedWindowClosed)
		})
	}
}

func TestHold_OutlivesAgentAndReboot(t *testing.T) {
	x := runningTest(t, restarting(2, time.Second))
	x.mustOperate(LocalHold)
	x.holdRobot(LocalHold)
	x.left, x.alive = shim.State{Started: &shim.Started{At: x.wall}}, x.shims.last
	x.restartAgent()
	if holds := x.local.Read().Holds; len(holds) != 2 || holds[0].UID != "t1" || holds[0].Name != "task-t1" || holds[0].By != person || holds[0].Reason != "a broken arm" || holds[0].ID == holds[1].ID {
		t.Fatalf("the next agent has the holds %+v", holds)
	}
	x.interrupt(0)
	if s := x.lastReport(); s.Refused != wire.RefusedHeld {
		t.Errorf("the next agent reports %+v", s)
	}
}

func TestHold_EndsWithTheTask(t *testing.T) {
	x := runningTest(t, restarting(1, time.Second))
	x.mustOperate(LocalHold)
	x.holdRobot(LocalHold)
	x.end(shim.Exit{Code: 3})
	if x.local.Read().FindHold("t1").UID != "t1" {
		t.Fatal("the hold ended although the task waits for its next run")
	}
	x.pass(time.Second)
	x.begin()
	x.end(shim.Exit{Code: 3})
	if holds := x.local.Read().Holds; len(holds) != 1 || holds[0].UID != "" {
		t.Errorf("after the task the holds are %+v", holds)
	}
	x.requireRefusal(LocalHold, "the task has ended")
}

func TestHold_IsBounded(t *testing.T) {
	x := runningTest(t, restarting(2, time.Second))
	x.mustOperate(LocalHold)
	x.requireRefusal(LocalHold, "held already, by "+person)
	full := *x.local.Read()
	for i := range wire.MaxHolds {
		full.Holds = append(full.Holds, wire.Hold{ID: fmt.Sprint("other", i), UID: fmt.Sprint("t", i+2)})
	}
	full.Holds = full.Holds[1:]
	if err := checkHolds(wire.LocalState{Holds: append(full.Holds, wire.Hold{ID: "x", UID: "t1"})}); err == nil || !strings.Contains(err.Error(), "64 holds") {
		t.Errorf("one hold too many: %v", err)
	}
	large := []wire.Hold{{ID: "1", UID: "t1", Reason: strings.Repeat("<", wire.MaxLocalState/6)}}
	if err := checkHolds(wire.LocalState{Holds: large}); err == nil || !strings.Contains(err.Error(), "too large") {
		t.Errorf("a state that fits into no message: %v", err)
	}
}

func TestRelease_NamesWhatRemains(t *testing.T) {
	x := runningTest(t, restarting(2, time.Second))
	x.requireAnswer(LocalRelease, "the task is not held")
	x.requireAnswer(LocalReleaseAll, "there are no holds")
	x.requireAnswer(LocalHold, "held: ")
	x.holdRobot(LocalHold)
	x.requireAnswer(LocalRelease, "released, but the whole robot is held")
	x.requireAnswer(LocalReleaseAll, "released 1 of 1 holds")
}
