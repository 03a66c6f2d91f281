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

// plan is what a task does and how it must end.
type plan struct {
	work      string // shell script
	timeout   time.Duration
	stop      bool // the server stops it after it has started
	end       end
	runsToEnd bool // it reaches the end of its script
}

// end is how an attempt ended.
type end struct {
	State, Reason string
	Code          int32
}

func endOf(s wire.Status) end { return end{s.State, s.Reason, s.ExitCode} }

// drawPlan returns a random plan for the next task. Most tasks complete; some fail, leave processes
// in sessions of their own, exceed their timeout or are stopped.
func drawPlan(r *rand.Rand) plan {
	nap := fmt.Sprintf("sleep 0.%03d", r.IntN(250))
	completed := end{State: wire.ReportCompleted}
	switch r.IntN(10) {
	case 0:
		return plan{work: nap + "; trap 'exit 3' EXIT", end: end{wire.ReportFailed, wire.ReasonExited, 3}, runsToEnd: true}
	case 1:
		return plan{work: "setsid sleep 600 & (setsid sh -c 'sleep 600; :' &); " + nap, end: completed, runsToEnd: true}
	case 2:
		return plan{work: "sleep 600", timeout: 200 * time.Millisecond, end: end{wire.ReportFailed, wire.ReasonTimeout, 143}}
	case 3:
		return plan{work: "sleep 600", stop: true, end: end{wire.ReportFailed, wire.ReasonStopped, 143}}
	}
	return plan{work: nap, end: completed, runsToEnd: true}
}

// dispatched is one task that was dispatched.
type dispatched struct {
	plan
	task wire.Task
	ran  bool         // the robot has reported that it runs or ended
	end  *wire.Status // the first report of its end; nil: none yet
	due  time.Time    // when its dispatch is repeated
}

// dispatcher dispatches tasks to a robot, as a server does: it repeats each dispatch until a report
// arrives. It is the model that the reports and the trace are compared with.
type dispatcher struct {
	t      testing.TB
	robot  *realrobot.Robot
	server *fakeserver.Server
	trace  *testkit.Trace
	rand   *rand.Rand

	mu    sync.Mutex
	tasks map[string]*dispatched
	open  map[string]*dispatched // those that have not ended
	seen  int                    // registrations of the robot at the last round at the last round
}

func newDispatcher(t testing.TB, r *realrobot.Robot, broker string, seed uint64) *dispatcher {
	a := &dispatcher{
		t: t, robot: r, trace: testkit.NewTrace(t), rand: rand.New(rand.NewPCG(seed, 0xa5ed)),
		tasks: map[string]*dispatched{}, open: map[string]*dispatched{},
	}
	a.server = fakeserver.Start(t, broker, a.recordReport)
	return a
}

// recordReport records a report. All reports of the end of an attempt must be equal.
func (a *dispatcher) recordReport(_ string, s wire.Status) {
	a.mu.Lock()
	defer a.mu.Unlock()
	task := a.tasks[s.TaskUID]
	switch {
	case task == nil || s.Attempt != 1:
		a.t.Errorf("report of a task that was not dispatched: %+v", s)
		return
	case s.State == wire.ReportRunning && !task.ran:
		task.due = time.Time{} // a stop is sent in the next round
	case s.IsTerminal() && task.end != nil && endOf(*task.end) != endOf(s):
		a.t.Errorf("%s: the end was reported as %+v, then as %+v", s.TaskUID, *task.end, s)
	case s.IsTerminal() && task.end == nil:
		task.end = &s
		delete(a.open, s.TaskUID)
	}
	task.ran = task.ran || s.State == wire.ReportRunning || s.IsTerminal()
}

const (
	// maxOpenTasks is how many tasks the robot has at a time.
	maxOpenTasks = 40
	// redispatchInterval is the time after which the dispatch of a task without a report is repeated.
	redispatchInterval = time.Second
	// progressTimeout bounds each wait. It only ends a test that is stuck, so it is long enough for
	// slow machines.
	progressTimeout = 3 * time.Minute
)

// dispatchAll dispatches tasks, up to maxOpenTasks at a time, until enough returns true, and waits
// until all have ended. It gives up if no task ends for progressTimeout.
func (a *dispatcher) dispatchAll(enough func(dispatched int) bool) {
	a.t.Helper()
	lastEnded, lastProgress := -1, time.Now()
	for {
		ended, open := a.dispatchRound(enough)
		if open == 0 {
			return
		}
		if ended != lastEnded {
			lastEnded, lastProgress = ended, time.Now()
		}
		if time.Since(lastProgress) > progressTimeout {
			a.t.Errorf("no task has ended for %s; %d are open", progressTimeout, open)
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// dispatchRound sends the dispatches that are due. It returns how many tasks have ended and how many
// are open.
func (a *dispatcher) dispatchRound(enough func(dispatched int) bool) (ended, open int) {
	for _, d := range a.listDue(enough) {
		a.server.SendDispatch(a.robot.ID, d)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.tasks) - len(a.open), len(a.open)
}

// listDue adds new tasks until enough returns true, and returns the dispatches that are due.
func (a *dispatcher) listDue(enough func(dispatched int) bool) (due []wire.Dispatch) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(a.open) < maxOpenTasks && !enough(len(a.tasks)) {
		a.addPlan(drawPlan(a.rand))
	}
	now, seen := time.Now(), a.server.RegistrationCount(a.robot.ID)
	hasReconnected := seen != a.seen // then all dispatches are repeated
	a.seen = seen
	for _, task := range a.open {
		if task.due.After(now) && !hasReconnected {
			continue
		}
		task.due = now.Add(redispatchInterval)
		d := wire.Dispatch{Action: wire.ActionCreate, Task: task.task, Attempt: 1, Started: task.ran}
		if task.stop && task.ran {
			d = wire.Dispatch{Action: wire.ActionDelete, Task: wire.Task{Metadata: task.task.Metadata}, Attempt: 1}
		}
		due = append(due, d)
	}
	return due
}

// addPlan adds a task to the model.
func (a *dispatcher) addPlan(p plan) {
	uid := fmt.Sprintf("t%d", len(a.tasks))
	task := &dispatched{plan: p, task: fakeserver.NewShellTask(uid, a.trace.WrapScript(p.work))}
	task.task.Spec.Timeout = wire.Duration(p.timeout)
	a.tasks[uid], a.open[uid] = task, task
}

// checkRuns compares the robot's reports and the trace of the tasks with the model.
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

// checkRuns returns an error if a task did not run or end as planned.
func (t *dispatched) checkRuns(starts, ends map[testkit.Attempt]int) error {
	run := testkit.Attempt{UID: t.task.Metadata.UID, Number: 1}
	wantEnds := 0
	if t.runsToEnd {
		wantEnds = 1
	}
	switch {
	case t.end == nil:
		return fmt.Errorf("its end was not reported")
	case endOf(*t.end) != t.plan.end:
		return fmt.Errorf("it ended as %+v, want %+v", *t.end, t.plan.end)
	case starts[run] == 0 && t.runsToEnd: // others may be stopped before their first line
		return fmt.Errorf("it never ran")
	case ends[run] != wantEnds:
		return fmt.Errorf("it reached its end %d times, want %d", ends[run], wantEnds)
	}
	return nil
}
