package task

import (
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/lifecycle"
)

// robotFrom is a robot of a namespace that is online, takes so many tasks, and is
// shared with others.
func robotFrom(namespace, name string, tasks int64, sharedWith ...string) *v1alpha1.Robot {
	r := named(robotIn(lifecycle.RobotOnline), name, tasks)
	r.Namespace, r.Labels = namespace, map[string]string{}
	for _, other := range sharedWith {
		r.Labels[v1alpha1.ShareLabelPrefix+other] = "true"
	}
	return r
}

// taskOf is a task of a namespace that was made by hand.
func taskOf(namespace, name string, state lifecycle.TaskState, changes ...func(*World)) *v1alpha1.Task {
	w := world(state, append([]func(*World){byHand}, changes...)...)
	w.Task.Namespace, w.Task.Name = namespace, name
	return w.Task
}

func tenants() *Scheduler { return NewScheduler(func() time.Time { return noon }, logr.Discard()) }

func (s *Scheduler) knows(robots ...*v1alpha1.Robot) {
	for _, r := range robots {
		s.ledger.seeRobot(r)
	}
}

func (s *Scheduler) has(tasks ...*v1alpha1.Task) {
	for _, t := range tasks {
		s.ledger.seeTask(t)
	}
}

func (s *Scheduler) robotFor(namespace, task string) string {
	robot, _ := s.seat(key{Namespace: namespace, Name: task})
	return robot
}

func TestWhichRobotsANamespaceIsGiven(t *testing.T) {
	const none = "0 of 0 robots: none is in this namespace or shared with it"
	const notThis = "robot r1: is neither in this namespace nor shared with it"
	off := robotFrom("fleet", "r1", 1)
	off.Labels[v1alpha1.ShareLabelPrefix+"b"] = "false"
	bySelf := robotFrom("fleet", "r1", 1)
	bySelf.Spec.Labels = map[string]string{v1alpha1.ShareLabelPrefix + "b": "true"}
	younger := robotFrom("b", "r1", 1)
	younger.CreationTimestamp = metav1.NewTime(noon)
	selects := func(w *World) {
		name := "${robot.labels.share.robot.k8s4r.io/b}"
		w.Task.Spec.Constraints = []v1alpha1.Constraint{{LTarget: &name, Operand: "=", RTarget: new("true")}}
	}
	for _, c := range []struct {
		name    string
		robots  []*v1alpha1.Robot
		changes func(*World)
		want    string // robot, or refusal
	}{
		{"one that is shared with it", []*v1alpha1.Robot{robotFrom("fleet", "r1", 1, "a", "b")}, nil, "r1"},
		{"one that is shared and was chosen", []*v1alpha1.Robot{robotFrom("fleet", "r1", 1, "b")}, target("r1"), "r1"},
		{"none that is not shared", []*v1alpha1.Robot{robotFrom("fleet", "r1", 1)}, nil, none},
		{"none that is not shared, chosen or not", []*v1alpha1.Robot{robotFrom("fleet", "r1", 1)}, target("r1"), notThis},
		{"what does not exist sounds the same", nil, target("r1"), notThis},
		{"none that is shared with another", []*v1alpha1.Robot{robotFrom("fleet", "r1", 1, "bb")}, nil, none},
		{"none whose label says no", []*v1alpha1.Robot{off}, nil, none},
		{"none that says itself that it is shared", []*v1alpha1.Robot{bySelf}, nil, none},
		{"of two of one id the older counts, and the other is no robot", []*v1alpha1.Robot{robotFrom("fleet", "r1", 1), younger}, nil, none},
		{"its own beside a shared one", []*v1alpha1.Robot{robotFrom("b", "r0", 1), robotFrom("fleet", "r1", 1, "b")}, nil, "r0"},
		{"a task cannot read with whom a robot is shared", []*v1alpha1.Robot{robotFrom("fleet", "r1", 1, "b")}, selects,
			"0 of 1 robots: 1: constraint ${robot.labels.share.robot.k8s4r.io/b} = true is not met: label share.robot.k8s4r.io/b missing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := tenants()
			s.knows(c.robots...)
			changes := []func(*World){}
			if c.changes != nil {
				changes = append(changes, c.changes)
			}
			s.has(taskOf("b", "t", lifecycle.TaskPending, changes...))
			s.cycle(noon)
			robot, refusal := s.seat(key{Namespace: "b", Name: "t"})
			if robot+refusal != c.want {
				t.Errorf("robot %q, refusal %q, want %q", robot, refusal, c.want)
			}
		})
	}
}

// Each namespace that counted its own tasks only would fill the robot once more.
func TestRoomOnASharedRobotIsThatOfAll(t *testing.T) {
	s := tenants()
	s.knows(robotFrom("fleet", "r1", 2, "a", "b"))
	s.has(taskOf("a", "t", lifecycle.TaskRunning), taskOf("a", "u", lifecycle.TaskPending), taskOf("b", "t", lifecycle.TaskPending), taskOf("fleet", "t", lifecycle.TaskPending))
	s.cycle(noon)
	if held := s.ledger.robot("r1").held.Tasks; held != 2 {
		t.Errorf("it holds %d tasks, and has 2 places", held)
	}
}

func TestNamespacesTakeTurns(t *testing.T) {
	s := tenants()
	s.knows(robotFrom("fleet", "r1", 1, "a", "b"))
	first := map[string]int{}
	for range 6 {
		waits := map[string]*v1alpha1.Task{}
		for _, namespace := range []string{"a", "b", "fleet"} {
			waits[namespace] = taskOf(namespace, "t", lifecycle.TaskPending)
			s.has(waits[namespace])
		}
		s.cycle(noon)
		for namespace, task := range waits {
			if s.robotFor(namespace, "t") != "" {
				first[namespace]++
			}
			s.ledger.leave(keyOfTask(task))
		}
	}
	for _, namespace := range []string{"a", "b", "fleet"} {
		if first[namespace] != 2 {
			t.Errorf("of six free places they got %v", first)
		}
	}
}

// What waits for a robot that is shared no more must not start there, and what
// runs goes on.
func TestTheEndOfSharingKeepsNewTasksAway(t *testing.T) {
	s := tenants()
	s.knows(robotFrom("fleet", "r1", 3, "b"))
	s.has(taskOf("b", "runs", lifecycle.TaskRunning), taskOf("b", "waits", lifecycle.TaskPending), taskOf("fleet", "own", lifecycle.TaskPending))
	s.cycle(noon)
	if s.robotFor("b", "waits") != "r1" {
		t.Fatal("it was not shared")
	}
	s.knows(robotFrom("fleet", "r1", 3))
	s.cycle(noon)
	if got := s.robotFor("b", "waits"); got != "" {
		t.Errorf("the task that waits is to start on %s", got)
	}
	if s.robotFor("fleet", "own") != "r1" || s.robotFor("b", "runs") != "r1" || s.unwanted(key{Namespace: "b", Name: "runs"}) != "" {
		t.Error("another task lost its robot")
	}
	if s.ledger.robot("r1").held.Tasks != 2 {
		t.Errorf("it holds %d tasks", s.ledger.robot("r1").held.Tasks)
	}
	if since := s.contactSince("b"); !since.IsZero() {
		t.Errorf("a namespace without a robot has had one in contact since %s", since)
	}
	if capable := s.ledger.capable(taskOf("b", "waits", lifecycle.TaskPending), nil); capable {
		t.Error("a robot that is shared no more counts as one that could take it")
	}
}

func TestTheNextOfAnIDCountsWhenTheFirstIsGone(t *testing.T) {
	s := tenants()
	younger := robotFrom("b", "r1", 2)
	younger.CreationTimestamp = metav1.NewTime(noon)
	s.knows(younger, robotFrom("fleet", "r1", 2))
	s.has(taskOf("fleet", "runs", lifecycle.TaskRunning), taskOf("fleet", "waits", lifecycle.TaskPending), taskOf("b", "t", lifecycle.TaskPending))
	s.cycle(noon)
	if s.robotFor("fleet", "waits") != "r1" || s.robotFor("b", "t") != "" {
		t.Fatal("the younger counts")
	}
	s.ledger.dropRobot(key{Namespace: "fleet", Name: "r1"})
	s.cycle(noon)
	if s.robotFor("fleet", "waits") != "" || s.robotFor("b", "t") != "r1" {
		t.Error("the one that is gone counts")
	}
	if held := s.ledger.robot("r1").held.Tasks; held != 2 {
		t.Errorf("it holds %d tasks: what may still run there takes its place", held)
	}
}

// Groups of two namespaces may have one name, and nothing else in common.
func TestAGroupIsSpreadByItsOwnTasksOnly(t *testing.T) {
	s := informed(func() time.Time { return noon })
	busy := robotFrom("ns", "r2", 10)
	busy.Spec.Capacity["cpu"] = resource.MustParse("1")
	s.knows(robotFrom("ns", "r1", 10), busy)
	load := taskOf("ns", "load", lifecycle.TaskRunning, func(w *World) {
		cpu := resource.MustParse("900m")
		w.Task.Spec.Resources = &v1alpha1.Resources{CPU: &cpu}
		w.Task.Spec.TargetRobot, w.Task.Status.Attempts[0].Robot = "r2", "r2"
	})
	other := world(lifecycle.TaskRunning).Task // of a group of the same name
	other.Namespace = "b"
	waits := world(lifecycle.TaskPending).Task
	waits.Name = "waits"
	s.has(load, other, waits)
	s.cycle(noon)
	if got := s.robotFor("ns", "waits"); got != "r1" {
		t.Errorf("it goes to %q, the one that has more to do", got)
	}
}

// urgent is a scheduler of a robot with two places that is shared with ns and b, and a
// task of ns that may preempt.
func urgent() (s *Scheduler, high *v1alpha1.Task) {
	s = informed(func() time.Time { return noon })
	s.Preempt()
	s.ledger.seeJob(running(func(j *v1alpha1.JobSpec) { p := int32(90); j.Priority, j.Preemption = &p, true }))
	s.knows(robotFrom("fleet", "r1", 2, "ns", "b"))
	high = world(lifecycle.TaskPending).Task
	s.has(high)
	return s, high
}

// A tenant's priority is its own word, and must not stop the work of another.
func TestPreemptionStaysInItsNamespace(t *testing.T) {
	s, _ := urgent()
	theirs, also := taskOf("b", "theirs", lifecycle.TaskRunning), taskOf("fleet", "also", lifecycle.TaskRunning)
	s.has(theirs, also)
	s.cycle(noon)
	if why := s.unwanted(keyOfTask(theirs)) + s.unwanted(keyOfTask(also)); why != "" {
		t.Errorf("a task of another namespace must leave: %s", why)
	}
}

// Or each that it stops would make place for somebody else, until it has stopped all.
func TestWhoMakesRoomOnASharedRobotGetsIt(t *testing.T) {
	for turns := range 2 { // whoever's turn it is when there is room
		s, high := urgent()
		low := taskOf("ns", "low", lifecycle.TaskRunning)
		s.has(low, taskOf("b", "theirs", lifecycle.TaskRunning))
		s.cycle(noon)
		if s.unwanted(keyOfTask(low)) == "" {
			t.Fatal("the task of its own namespace may stay")
		}
		s.has(taskOf("b", "waits", lifecycle.TaskPending))
		for range turns {
			s.cycle(noon)
		}
		low.Status.State, low.Status.Attempts[0].FinishedAt = "canceled", &metav1.MicroTime{Time: noon}
		s.has(low)
		s.cycle(noon)
		if got, other := s.robotFor("ns", high.Name), s.robotFor("b", "waits"); got != "r1" || other != "" {
			t.Errorf("who made room is given %q, another %q", got, other)
		}
		s.ledger.leave(keyOfTask(high))
		s.cycle(noon)
		if s.robotFor("b", "waits") != "r1" || len(s.ledger.kept) != 0 {
			t.Errorf("the robot is kept for nobody: %v", s.ledger.kept)
		}
	}
}

func notShared(w *World) { w.Robot.Namespace = "fleet" }

func shared(w *World) {
	notShared(w)
	w.Robot.Labels = map[string]string{v1alpha1.ShareLabelPrefix + "ns": "true"}
}

func TestATaskOnTheRobotOfAnotherNamespace(t *testing.T) {
	for _, c := range []struct {
		name string
		in   World
		want lifecycle.TaskState // empty: it stays as it is
		says string
	}{
		{"starts where it is shared", world(lifecycle.TaskPending, seat, shared), lifecycle.TaskDispatching, "Dispatching to r1"},
		{"does not start where it is shared no more", world(lifecycle.TaskPending, seat, notShared), "", ""},
		{"goes on when it is shared no more", world(lifecycle.TaskRunning, notShared), "", ""},
		{"is restarted where it is shared", world(lifecycle.TaskExited, restarts(3, 0, 0), shared), lifecycle.TaskDispatching, "again"},
		{"is not restarted when it is shared no more, and the robot is not to blame",
			world(lifecycle.TaskExited, restarts(3, 0, 0), notShared), lifecycle.TaskPending, "Returned by r1: it is no longer shared with namespace ns"},
		{"is lost with it as with any other", world(lifecycle.TaskRunning, notShared, phase(lifecycle.RobotOffline)), lifecycle.TaskUnknown, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Plan(noon, c.in)
			var state lifecycle.TaskState
			message := ""
			if got.Status != nil {
				state, message = lifecycle.TaskState(got.Status.State), got.Status.Message
			}
			if state != c.want || !strings.Contains(message, c.says) {
				t.Errorf("%s (%s), want %s (%s)", state, message, c.want, c.says)
			}
			if state == lifecycle.TaskPending && len(got.Status.FailedRobots) > 0 {
				t.Errorf("failed robots %v", got.Status.FailedRobots)
			}
		})
	}
}
