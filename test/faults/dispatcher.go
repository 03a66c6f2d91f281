package main

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/testkit"
	"k8s4r.io/k8s4r/internal/testkit/fakeserver"
	"k8s4r.io/k8s4r/internal/testkit/realrobot"
)

// plan is what a task does, and how it is to end.
type plan struct {
	work    string
	timeout time.Duration
	stop    bool // once it runs
	end     end
	// whole: it comes to its own end.
	whole bool
}

// end is how an attempt ended.
type end struct {
	State, Reason string
	Code          int32
}

func endOf(s wire.Status) end { return end{s.State, s.Reason, s.ExitCode} }

// drawPlan is what the next task shall do. Most come to their end; some fail, leave
// processes behind in sessions of their own, run too long or are called off.
func drawPlan(r *rand.Rand) plan {
	nap := fmt.Sprintf("sleep 0.%03d", r.IntN(250))
	completed := end{State: wire.ReportCompleted}
	switch r.IntN(10) {
	case 0:
		return plan{work: nap + "; trap 'exit 3' EXIT", end: end{wire.ReportFailed, wire.ReasonExited, 3}, whole: true}
	case 1:
		return plan{work: "setsid sleep 600 & (setsid sh -c 'sleep 600; :' &); " + nap, end: completed, whole: true}
	case 2:
		return plan{work: "sleep 600", timeout: 200 * time.Millisecond, end: end{wire.ReportFailed, wire.ReasonTimeout, 143}}
	case 3:
		return plan{work: "sleep 600", stop: true, end: end{wire.ReportFailed, wire.ReasonStopped, 143}}
	}
	return plan{work: nap, end: completed, whole: true}
}

// dispatched is one task that was asked for.
type dispatched struct {
	plan
	task wire.Task
	ran  bool // the robot has said so
	end  *wire.Status
	due  time.Time // to be said again
}

// dispatcher asks a robot for tasks, as a server does: it says each until it is answered.
// It is the model that the history is held against.
type dispatcher struct {
	t      testing.TB
	robot  *realrobot.Robot
	server *fakeserver.Server
	trace  *testkit.Trace
	rand   *rand.Rand

	mu    sync.Mutex
	tasks map[string]*dispatched
	open  map[string]*dispatched // those that have not ended
	seen  int                    // registrations of the robot
}

func newDispatcher(t testing.TB, r *realrobot.Robot, broker string, seed uint64) *dispatcher {
	a := &dispatcher{
		t: t, robot: r, trace: testkit.NewTrace(t), rand: rand.New(rand.NewPCG(seed, 0xa5ed)),
		tasks: map[string]*dispatched{}, open: map[string]*dispatched{},
	}
	a.server = fakeserver.Start(t, broker, a.recordReport)
	return a
}

// recordReport takes in a report. An attempt ends once, and always says the same of it.
func (a *dispatcher) recordReport(_ string, s wire.Status) {
	a.mu.Lock()
	defer a.mu.Unlock()
	task := a.tasks[s.TaskUID]
	switch {
	case task == nil || s.Attempt != 1:
		a.t.Errorf("a report of a task that was not dispatched: %+v", s)
		return
	case s.State == wire.ReportRunning && !task.ran:
		task.due = time.Time{} // what follows from it follows at once
	case s.IsTerminal() && task.end != nil && endOf(*task.end) != endOf(s):
		a.t.Errorf("%s ended as %+v, and then as %+v", s.TaskUID, *task.end, s)
	case s.IsTerminal() && task.end == nil:
		task.end = &s
		delete(a.open, s.TaskUID)
	}
	task.ran = task.ran || s.State == wire.ReportRunning || s.IsTerminal()
}

const (
	// atOnce is how many tasks the robot has at a time.
	atOnce = 40
	// sayAgain is the time after which a server repeats a message that was not answered.
	sayAgain = time.Second
	// patience bounds the wait for one more task to end.
	patience = 2 * time.Minute
)

// dispatchAll asks for tasks, as many at a time as the robot is to have, until enough says
// so, and waits until all have ended.
func (a *dispatcher) dispatchAll(enough func(asked int) bool) {
	a.t.Helper()
	left, moved := -1, time.Now()
	for {
		if n := a.dispatchRound(enough); n != left {
			left, moved = n, time.Now()
		}
		if left == 0 {
			return
		}
		if time.Since(moved) > patience {
			a.t.Errorf("%d tasks do not end", left)
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// dispatchRound says what is due. It returns a number that moves as long as tasks end.
func (a *dispatcher) dispatchRound(enough func(asked int) bool) (left int) {
	for _, d := range a.listDue(enough) {
		a.server.SendDispatch(a.robot.ID, d)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.open) == 0 {
		return 0
	}
	return len(a.tasks)
}

func (a *dispatcher) listDue(enough func(asked int) bool) (say []wire.Dispatch) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(a.open) < atOnce && !enough(len(a.tasks)) {
		a.addPlan(drawPlan(a.rand))
	}
	now, seen := time.Now(), a.server.RegistrationCount(a.robot.ID)
	anew := seen != a.seen // all is said to a robot that has come back
	a.seen = seen
	for _, task := range a.open {
		if task.due.After(now) && !anew {
			continue
		}
		task.due = now.Add(sayAgain)
		d := wire.Dispatch{Action: wire.ActionCreate, Task: task.task, Attempt: 1, Started: task.ran}
		if task.stop && task.ran {
			d = wire.Dispatch{Action: wire.ActionDelete, Task: wire.Task{Metadata: task.task.Metadata}, Attempt: 1}
		}
		say = append(say, d)
	}
	return say
}

// addPlan takes one more task into the model.
func (a *dispatcher) addPlan(p plan) {
	uid := fmt.Sprintf("t%d", len(a.tasks))
	task := &dispatched{plan: p, task: fakeserver.NewShellTask(uid, a.trace.WrapScript(p.work))}
	task.task.Spec.Timeout = wire.Duration(p.timeout)
	a.tasks[uid], a.open[uid] = task, task
}

// checkRuns holds what the robot said, and what the tasks wrote, against the model.
func (a *dispatcher) checkRuns() figures {
	a.t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	f := figures{Tasks: len(a.tasks), Orphans: a.robot.CountOrphans()}
	starts, ends := a.trace.CountRuns(a.t)
	for run, n := range starts {
		if n != 1 || run.Number != 1 || a.tasks[run.UID] == nil {
			f.Doubled++
			a.t.Errorf("attempt %d of %s started %d times", run.Number, run.UID, n)
		}
	}
	for uid, task := range a.tasks {
		if err := task.checkRuns(starts, ends); err != nil {
			f.Lost++
			a.t.Errorf("%s: %v", uid, err)
		}
	}
	return f
}

// checkRuns tells in what a task did not go as it was asked.
func (t *dispatched) checkRuns(starts, ends map[testkit.Attempt]int) error {
	run := testkit.Attempt{UID: t.task.Metadata.UID, Number: 1}
	wantEnds := 0
	if t.whole {
		wantEnds = 1
	}
	switch {
	case t.end == nil:
		return fmt.Errorf("its end was never heard of")
	case endOf(*t.end) != t.plan.end:
		return fmt.Errorf("it ended as %+v, want %+v", *t.end, t.plan.end)
	case starts[run] == 0 && t.whole: // others may be ended before their first line
		return fmt.Errorf("it never ran")
	case ends[run] != wantEnds:
		return fmt.Errorf("it came to its end %d times, want %d", ends[run], wantEnds)
	}
	return nil
}
