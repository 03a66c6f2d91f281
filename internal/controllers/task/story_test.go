package task

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/lifecycle"
	"k8s4r.io/k8s4r/internal/placement"
	"k8s4r.io/k8s4r/internal/testkit/golden"
)

// stage plays the ledger and the planner against each other, with the API
// server and the robots in a few lines, and writes down what happens.
type stage struct {
	t      *testing.T
	now    time.Time
	s      *Scheduler
	tasks  map[string]*v1alpha1.Task
	robots map[string]*v1alpha1.Robot
	job    *v1alpha1.Job
	group  *v1alpha1.TaskGroup // nil: one that asks for nothing special
	said   strings.Builder
}

func newStage(t *testing.T) *stage {
	g := &stage{t: t, now: noon, tasks: map[string]*v1alpha1.Task{}, robots: map[string]*v1alpha1.Robot{}}
	g.s = informed(func() time.Time { return g.now })
	g.job = &v1alpha1.Job{ObjectMeta: metav1.ObjectMeta{Name: "j", Namespace: "ns"}, Status: v1alpha1.JobStatus{State: "running"}}
	g.s.ledger.seeJob(g.job)
	return g
}

func (g *stage) say(format string, args ...any) { fmt.Fprintf(&g.said, format+"\n", args...) }

func (g *stage) robot(name string, p lifecycle.RobotPhase) {
	g.say("> robot %s is %s", name, p)
	r := heard(p, g.now)
	if old := g.robots[name]; old != nil && p != lifecycle.RobotOnline {
		r.Status.LastHeartbeatTime = old.Status.LastHeartbeatTime
	}
	r.Name, r.Namespace = name, "ns"
	g.robots[name] = r
	g.s.ledger.seeRobot(r)
	g.play()
}

func (g *stage) create(name string, index int, target string) {
	g.say("> task %s is created %s", name, orNothing("on ", target, "without a robot"))
	w := world(lifecycle.TaskPending)
	w.Task.Name, w.Task.Spec.TargetRobot = name, target
	w.Task.Labels = map[string]string{v1alpha1.LabelTaskIndex: fmt.Sprint(index)}
	g.tasks[name] = w.Task
	g.s.ledger.seeTask(w.Task)
	g.play()
}

func (g *stage) report(name string, signal lifecycle.TaskSignal, why string) {
	g.say("> %s: %s", name, strings.TrimSpace(string(signal)+" "+why))
	t := g.tasks[name]
	to, ok := lifecycle.StepTask(lifecycle.TaskState(t.Status.State), signal)
	if !ok {
		g.say("dropped: %s does not accept it", t.Status.State)
		return
	}
	t.Status.State, t.Status.Reason = string(to), why
	g.s.ledger.seeTask(t)
	g.play()
}

// says is a robot's word about one attempt, as the server writes it down.
func (g *stage) says(robot, name string, attempt int32, signal lifecycle.TaskSignal) {
	g.say("> %s of %s, attempt %d: %s", robot, name, attempt, signal)
	t := g.tasks[name]
	e := t.Status.Entry(attempt)
	switch {
	case signal != lifecycle.TaskStarted:
		e.FinishedAt, e.State = &metav1.MicroTime{Time: g.now}, string(lifecycle.TaskFailed)
	case e.StartedAt == nil:
		e.StartedAt = &metav1.MicroTime{Time: g.now}
	}
	state := lifecycle.TaskState(t.Status.State)
	to, ok := lifecycle.StepTask(state, signal)
	switch {
	case state.OnRobot() && attempt == t.Status.Attempt && ok:
		t.Status.State, e.State = string(to), string(to)
	case signal == lifecycle.TaskStarted:
		e.State = string(lifecycle.TaskRunning)
	case signal == lifecycle.TaskSucceeded:
		e.State = string(lifecycle.TaskCompleted)
	}
	g.s.ledger.seeTask(t)
	g.play()
}

func (g *stage) jobBecomes(s lifecycle.JobState, why string) {
	g.say("> the job is %s: %s", s, why)
	g.job.Status.State, g.job.Status.StatusDescription = string(s), why
	g.s.ledger.seeJob(g.job)
	g.play()
}

func (g *stage) wants(names ...string) {
	g.say("> the group asks for %s", strings.Join(names, ", "))
	var demands []placement.Demand
	for i, n := range names {
		demands = append(demands, placement.Demand{Group: "g", Index: 10 + i, Tasks: []placement.Task{{Name: n, Driver: "exec"}}})
	}
	g.s.ledger.want(groupG, g.job, demands)
	g.play()
	for i, n := range names {
		robot := g.s.ledger.seats(keyOf(groupG), demands[i:i+1])[n].Name
		g.say("seat of %s: %s", n, orNothing("", robot, "none"))
	}
}

func (g *stage) pass(d time.Duration) {
	g.say("> %s pass", d)
	g.now = g.now.Add(d)
	g.play()
}

func orNothing(before, s, instead string) string {
	if s == "" {
		return instead
	}
	return before + s
}

// play runs cycles and plans until nothing changes any more.
func (g *stage) play() {
	for range 20 {
		g.s.cycle(g.now)
		if !g.plan() {
			return
		}
	}
	g.t.Fatalf("never settles:\n%s", g.said.String())
}

func (g *stage) plan() (changed bool) {
	names := make([]string, 0, len(g.tasks))
	for n := range g.tasks {
		names = append(names, n)
	}
	slices.Sort(names)
	for _, n := range names {
		t := g.tasks[n]
		w := World{Task: t, Job: g.job, MayTell: false}
		g.stand(&w)
		w.Seat, w.Refusal = g.s.seat(key{Namespace: "ns", Name: n})
		w.MayTell = untold(g.now, t, w.Refusal)
		w.Robot = g.robots[w.robotName()]
		w.ContactSince = g.s.contactSince("ns")
		if o := t.Status.Entry(t.Status.Original); o != nil {
			w.Origin = g.robots[o.Robot]
		}
		if w.contested() {
			w.Better = g.s.better(t, t.Status.Entry(t.Status.Original).Robot, t.RobotOfAttempt())
		}
		steps := Plan(g.now, w)
		for _, why := range steps.Why {
			g.say("plan: %s %s", n, why)
		}
		if steps.Bind != nil {
			steps.Bind.write(t)
		}
		if steps.Status != nil {
			t.Status = *steps.Status
		}
		if steps.Rebind != nil {
			steps.Rebind.write(t)
		}
		if steps.placing() != nil || steps.Status != nil {
			g.s.ledger.seeTask(t)
			changed = true
		}
	}
	return changed
}

func TestStories(t *testing.T) {
	for name, tell := range map[string]func(*stage){
		"replicas-spread-and-share": func(g *stage) {
			g.robot("r1", lifecycle.RobotOnline)
			g.robot("r2", lifecycle.RobotOnline)
			g.create("t0-a", 0, "")
			g.create("t0-b", 0, "")
			g.create("t1-a", 1, "")
			g.report("t0-a", lifecycle.TaskStarted, "")
			g.report("t0-a", lifecycle.TaskSucceeded, "")
		},
		"no-robot-then-one": func(g *stage) {
			g.create("t0", 0, "")
			g.robot("r1", lifecycle.RobotPending)
			g.robot("r1", lifecycle.RobotOnline)
		},
		"robot-lost-and-back": func(g *stage) {
			g.robot("r1", lifecycle.RobotOnline)
			g.create("t0", 0, "")
			g.report("t0", lifecycle.TaskStarted, "")
			g.robot("r1", lifecycle.RobotUnknown)
			g.robot("r1", lifecycle.RobotOffline)
			g.robot("r1", lifecycle.RobotOnline)
			g.report("t0", lifecycle.TaskStarted, "")
			g.report("t0", lifecycle.TaskSucceeded, "")
			g.report("t0", lifecycle.TaskStarted, "")
		},
		"agent-stopped-so-elsewhere": func(g *stage) {
			g.robot("r1", lifecycle.RobotOnline)
			g.create("t0", 0, "")
			g.report("t0", lifecycle.TaskStarted, "")
			g.robot("r1", lifecycle.RobotUnknown)
			g.robot("r2", lifecycle.RobotOnline)
			g.report("t0", lifecycle.TaskErred, "AgentStopped")
		},
		"created-bound-and-the-robot-leaves-first": func(g *stage) {
			g.robot("r1", lifecycle.RobotOnline)
			g.wants("t10", "t11")
			g.robot("r1", lifecycle.RobotOffline)
			g.robot("r2", lifecycle.RobotOnline)
			g.create("t10", 10, "r1")
		},
		"job-failed": func(g *stage) {
			g.robot("r1", lifecycle.RobotOnline)
			g.create("t0", 0, "")
			g.create("t1", 1, "")
			g.report("t0", lifecycle.TaskStarted, "")
			g.jobBecomes(lifecycle.JobFailed, "too many tasks failed")
			g.create("t2", 2, "")
			g.report("t1", lifecycle.TaskStopped, "")
			g.pass(time.Minute)
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newStage(t)
			tell(g)
			golden.Equal(t, name, g.said.String())
		})
	}
}
