package task

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/placement"
	"k8s4r.io/k8s4r/internal/scheduler"
	"k8s4r.io/k8s4r/internal/testkit/golden"
)

// story runs the scheduler and the planner together, with a model of the API server and the robots,
// and records what happens.
type story struct {
	t      *testing.T
	now    time.Time
	s      *scheduler.Scheduler
	tasks  map[string]*v1alpha1.Task
	robots map[string]*v1alpha1.Robot
	job    *v1alpha1.Job
	group  *v1alpha1.TaskGroup // nil: one that asks for nothing special
	output strings.Builder

	contacts *Contacts
	// windowClosesAt is when the maintenance windows of all robots close. Zero: there are none.
	windowClosesAt time.Time
}

func newStory(t *testing.T) *story {
	g := &story{t: t, now: noon, tasks: map[string]*v1alpha1.Task{}, robots: map[string]*v1alpha1.Robot{}}
	g.s = newScheduler(func() time.Time { return g.now })
	g.contacts = NewContacts(func() time.Duration { return g.now.Sub(noon) }, nil)
	g.job = &v1alpha1.Job{ObjectMeta: metav1.ObjectMeta{Name: "j", Namespace: "ns"}, Status: v1alpha1.JobStatus{State: "running"}}
	g.showObject(g.job)
	return g
}

func (g *story) logLine(format string, args ...any) { fmt.Fprintf(&g.output, format+"\n", args...) }

func (g *story) setRobot(name string, p lifecycle.RobotPhase) {
	g.logLine("> robot %s is %s", name, p)
	r := robotSeenAt(p, g.now)
	if old := g.robots[name]; old != nil && p != lifecycle.RobotOnline {
		r.Status.LastHeartbeatTime = old.Status.LastHeartbeatTime
	}
	r.Name, r.Namespace = name, "ns"
	g.robots[name] = r
	g.contacts.ObserveRobot(client.ObjectKeyFromObject(r), r)
	g.showObject(r)
	g.runUntilStable()
}

func (g *story) createTask(name string, index int, target string) {
	g.logLine("> task %s is created %s", name, orNothing("on ", target, "without a robot"))
	w := newInput(lifecycle.TaskPending)
	w.Task.Name, w.Task.Spec.TargetRobot = name, target
	w.Task.Labels = map[string]string{v1alpha1.LabelTaskIndex: fmt.Sprint(index)}
	g.tasks[name] = w.Task
	g.showObject(w.Task)
	g.runUntilStable()
}

func (g *story) reportSignal(name string, signal lifecycle.TaskSignal, why string) {
	g.logLine("> %s: %s", name, strings.TrimSpace(string(signal)+" "+why))
	t := g.tasks[name]
	to, ok := lifecycle.StepTask(lifecycle.TaskState(t.Status.State), signal)
	if !ok {
		g.logLine("dropped: %s does not accept it", t.Status.State)
		return
	}
	t.Status.State, t.Status.Reason = string(to), why
	if e := t.Status.FindAttempt(t.Status.Attempt); e != nil && e.FinishedAt == nil && signal != lifecycle.TaskStarted {
		e.FinishedAt = &metav1.MicroTime{Time: g.now}
	}
	g.showObject(t)
	g.runUntilStable()
}

// reportAttempt writes a robot's report about one attempt, as the server does.
func (g *story) reportAttempt(robot, name string, attempt int32, signal lifecycle.TaskSignal) {
	g.logLine("> %s of %s, attempt %d: %s", robot, name, attempt, signal)
	t := g.tasks[name]
	e := t.Status.FindAttempt(attempt)
	switch {
	case signal != lifecycle.TaskStarted:
		e.FinishedAt, e.State = &metav1.MicroTime{Time: g.now}, string(lifecycle.TaskFailed)
	case e.StartedAt == nil:
		e.StartedAt = &metav1.MicroTime{Time: g.now}
	}
	state := lifecycle.TaskState(t.Status.State)
	to, ok := lifecycle.StepTask(state, signal)
	switch {
	case state.HoldsResources() && attempt == t.Status.Attempt && ok:
		t.Status.State, e.State = string(to), string(to)
	case signal == lifecycle.TaskStarted:
		e.State = string(lifecycle.TaskRunning)
	case signal == lifecycle.TaskSucceeded:
		e.State = string(lifecycle.TaskCompleted)
	}
	g.showObject(t)
	g.runUntilStable()
}

func (g *story) setJobState(s lifecycle.JobState, why string) {
	g.logLine("> the job is %s: %s", s, why)
	g.job.Status.State, g.job.Status.StatusDescription = string(s), why
	g.showObject(g.job)
	g.runUntilStable()
}

func (g *story) requestTasks(names ...string) {
	g.logLine("> the group asks for %s", strings.Join(names, ", "))
	var demands []placement.Demand
	for i, n := range names {
		demands = append(demands, placement.Demand{Group: "g", Index: 10 + i, Tasks: []placement.Task{{Name: n, Driver: "exec"}}})
	}
	robots := g.reserveRobots(demands)
	g.runUntilStable()
	for _, n := range names {
		g.logLine("robot of %s: %s", n, orNothing("", robots[n].Name, "none"))
	}
}

// reserveRobots runs cycles until the group has an answer.
func (g *story) reserveRobots(demands []placement.Demand) map[string]placement.Robot {
	answer := make(chan map[string]placement.Robot)
	go func() {
		robots, err := g.s.ReserveRobots(g.t.Context(), groupG, g.job, demands)
		if err != nil {
			g.t.Error(err)
		}
		answer <- robots
	}()
	for {
		g.s.RunCycle(g.now)
		select {
		case robots := <-answer:
			return robots
		case <-time.After(time.Millisecond):
		}
	}
}

func (g *story) passTime(d time.Duration) {
	g.logLine("> %s pass", d)
	g.now = g.now.Add(d)
	g.runUntilStable()
}

func orNothing(before, s, instead string) string {
	if s == "" {
		return instead
	}
	return before + s
}

// runUntilStable runs cycles and plans until nothing changes any more.
func (g *story) runUntilStable() {
	for range 20 {
		g.s.RunCycle(g.now)
		if !g.planTasks() {
			return
		}
	}
	g.t.Fatalf("the tasks still change after many rounds:\n%s", g.output.String())
}

func (g *story) planTasks() (changed bool) {
	names := make([]string, 0, len(g.tasks))
	for n := range g.tasks {
		names = append(names, n)
	}
	slices.Sort(names)
	for _, n := range names {
		t := g.tasks[n]
		w := Input{Task: t, Job: g.job, MayExplain: false}
		g.fillReplica(&w)
		w.HasCapableRobot, _ = g.s.HasCapableRobot(w.Task, w.failedRobots())
		w.ReservedRobot, w.Rejected = g.s.Assignment(key{Namespace: "ns", Name: n})
		w.MayExplain = w.Rejected != nil && w.explainPlacement().isDue(g.now, t)
		w.Robot = g.robots[w.robotName()]
		if lifecycle.TaskState(t.Status.State).IsActive() {
			w.setEviction(g.s.Eviction(keyOfTask(t)))
			w.WindowClosesAt = g.windowClosesAt
		}
		w.Contact, w.Ages = g.contacts.ObserveRobot(key{Namespace: "ns", Name: w.robotName()}, w.Robot), g.contacts.ObserveTask(t)
		w.OnlineSince = g.s.OnlineSince("ns")
		if o := t.Status.FindAttempt(t.Status.LostAttempt); o != nil {
			w.LostAttemptRobot = g.robots[o.Robot]
		}
		if w.needsRobotComparison() {
			w.BetterRobot = g.s.BetterRobot(t, w.LostAttemptRobot, w.Robot)
		}
		w.OpenAttempts = g.openAttempts(t)
		steps := Plan(g.now, w)
		for _, why := range steps.Reasons {
			g.logLine("plan: %s %s", n, why)
		}
		if steps.Bind != nil {
			steps.Bind.applyTo(t)
		}
		if steps.Status != nil {
			t.Status = *steps.Status
		}
		if steps.Rebind != nil {
			steps.Rebind.applyTo(t)
		}
		if steps.WithdrawEviction {
			clearEviction(t)
		}
		if steps.binding() != nil || steps.Status != nil {
			g.showObject(t)
			changed = true
		}
	}
	return changed
}

// openAttempts returns the attempts that have not ended, with their robots.
func (g *story) openAttempts(t *v1alpha1.Task) (open []OtherAttempt) {
	for i := range t.Status.Attempts {
		if a := &t.Status.Attempts[i]; a.FinishedAt == nil && a.Robot != "" {
			open = append(open, OtherAttempt{Attempt: a.Attempt, Name: a.Robot, Robot: g.robots[a.Robot]})
		}
	}
	return open
}

func TestStories(t *testing.T) {
	for name, tell := range map[string]func(*story){
		"replicas-spread-and-share": func(g *story) {
			g.setRobot("r1", lifecycle.RobotOnline)
			g.setRobot("r2", lifecycle.RobotOnline)
			g.createTask("t0-a", 0, "")
			g.createTask("t0-b", 0, "")
			g.createTask("t1-a", 1, "")
			g.reportSignal("t0-a", lifecycle.TaskStarted, "")
			g.reportSignal("t0-a", lifecycle.TaskSucceeded, "")
		},
		"no-robot-then-one": func(g *story) {
			g.createTask("t0", 0, "")
			g.setRobot("r1", lifecycle.RobotPending)
			g.setRobot("r1", lifecycle.RobotOnline)
		},
		"robot-lost-and-back": func(g *story) {
			g.setRobot("r1", lifecycle.RobotOnline)
			g.createTask("t0", 0, "")
			g.reportSignal("t0", lifecycle.TaskStarted, "")
			g.setRobot("r1", lifecycle.RobotUnknown)
			g.setRobot("r1", lifecycle.RobotOffline)
			g.setRobot("r1", lifecycle.RobotOnline)
			g.reportSignal("t0", lifecycle.TaskStarted, "")
			g.reportSignal("t0", lifecycle.TaskSucceeded, "")
			g.reportSignal("t0", lifecycle.TaskStarted, "")
		},
		"agent-stopped-so-elsewhere": func(g *story) {
			g.setRobot("r1", lifecycle.RobotOnline)
			g.createTask("t0", 0, "")
			g.reportSignal("t0", lifecycle.TaskStarted, "")
			g.setRobot("r1", lifecycle.RobotUnknown)
			g.setRobot("r2", lifecycle.RobotOnline)
			g.reportSignal("t0", lifecycle.TaskAttemptFailed, "AgentStopped")
		},
		"created-bound-and-the-robot-leaves-first": func(g *story) {
			g.setRobot("r1", lifecycle.RobotOnline)
			g.requestTasks("t10", "t11")
			g.setRobot("r1", lifecycle.RobotOffline)
			g.setRobot("r2", lifecycle.RobotOnline)
			g.createTask("t10", 10, "r1")
		},
		"job-failed": func(g *story) {
			g.setRobot("r1", lifecycle.RobotOnline)
			g.createTask("t0", 0, "")
			g.createTask("t1", 1, "")
			g.reportSignal("t0", lifecycle.TaskStarted, "")
			g.setJobState(lifecycle.JobFailed, "too many tasks failed")
			g.createTask("t2", 2, "")
			g.reportSignal("t1", lifecycle.TaskStopped, "")
			g.passTime(time.Minute)
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newStory(t)
			tell(g)
			golden.Equal(t, name, g.output.String())
		})
	}
}

// newScheduler returns a scheduler that has observed running job j and its group g.
func newScheduler(now func() time.Time) *scheduler.Scheduler {
	s := scheduler.New(now, logr.Discard())
	s.JobHandler().OnAdd(runningJob, true)
	s.GroupHandler().OnAdd(groupG, true)
	return s
}

var (
	runningJob = &v1alpha1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "j"}, Status: v1alpha1.JobStatus{State: "running"}}
	groupG     = &v1alpha1.TaskGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "g"}, Spec: v1alpha1.TaskGroupSpec{JobName: "j"}}
)

// showObject shows an object to the scheduler.
func (g *story) showObject(obj client.Object) {
	switch obj.(type) {
	case *v1alpha1.Task:
		g.s.TaskHandler().OnAdd(obj, false)
	case *v1alpha1.Robot:
		g.s.RobotHandler().OnAdd(obj, false)
	case *v1alpha1.Job:
		g.s.JobHandler().OnAdd(obj, false)
	case *v1alpha1.TaskGroup:
		g.s.GroupHandler().OnAdd(obj, false)
	}
}

func named(r *v1alpha1.Robot, name string, tasks int64) *v1alpha1.Robot {
	r.Namespace, r.Name = "ns", name
	r.Spec.Capacity = map[string]resource.Quantity{"tasks": *resource.NewQuantity(tasks, resource.DecimalSI)}
	return r
}

func keyOfTask(t *v1alpha1.Task) key { return key{Namespace: t.Namespace, Name: t.Name} }
