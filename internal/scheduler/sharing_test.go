package scheduler

import (
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
)

// robotFrom returns an online robot of a namespace with a task limit, shared with other
// namespaces.
func robotFrom(namespace, name string, tasks int64, sharedWith ...string) *v1alpha1.Robot {
	r := named(robotIn(lifecycle.RobotOnline), name, tasks)
	r.Namespace, r.Labels = namespace, map[string]string{}
	for _, other := range sharedWith {
		r.Labels[v1alpha1.ShareLabelPrefix+other] = "true"
	}
	return r
}

// taskOf returns a task of a namespace without a group and a job.
func taskOf(namespace, name string, state lifecycle.TaskState, changes ...func(*v1alpha1.Task)) *v1alpha1.Task {
	task := newTask(state, append([]func(*v1alpha1.Task){byHand}, changes...)...)
	task.Namespace, task.Name = namespace, name
	return task
}

func newSharedScheduler() *Scheduler { return New(func() time.Time { return noon }, logr.Discard()) }

func (s *Scheduler) addRobots(robots ...*v1alpha1.Robot) {
	for _, r := range robots {
		s.state.updateRobot(r)
	}
}

func (s *Scheduler) addTasks(tasks ...*v1alpha1.Task) {
	for _, t := range tasks {
		s.state.updateTask(t)
	}
}

func (s *Scheduler) robotFor(namespace, task string) string {
	robot, _ := s.Assignment(key{Namespace: namespace, Name: task})
	return robot
}

func TestScheduler_UsesOwnAndSharedRobots(t *testing.T) {
	const none = "0 of 0 robots: none is in this namespace or shared with it"
	const notThis = "robot r1: is neither in this namespace nor shared with it"
	off := robotFrom("fleet", "r1", 1)
	off.Labels[v1alpha1.ShareLabelPrefix+"b"] = "false"
	bySelf := robotFrom("fleet", "r1", 1)
	bySelf.Spec.Labels = map[string]string{v1alpha1.ShareLabelPrefix + "b": "true"}
	younger := robotFrom("b", "r1", 1)
	younger.CreationTimestamp = metav1.NewTime(noon)
	selects := func(task *v1alpha1.Task) {
		name := "${robot.labels.share.robot.k8s4r.io/b}"
		task.Spec.Constraints = []v1alpha1.Constraint{{LTarget: &name, Operand: "=", RTarget: new("true")}}
	}
	for _, c := range []struct {
		name    string
		robots  []*v1alpha1.Robot
		changes func(*v1alpha1.Task)
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
			s := newSharedScheduler()
			s.addRobots(c.robots...)
			changes := []func(*v1alpha1.Task){}
			if c.changes != nil {
				changes = append(changes, c.changes)
			}
			s.addTasks(taskOf("b", "t", lifecycle.TaskPending, changes...))
			s.decide(noon)
			robot, refusal := s.Assignment(key{Namespace: "b", Name: "t"})
			if robot+refusal.String() != c.want {
				t.Errorf("robot %q, rejection %q, want %q", robot, refusal, c.want)
			}
		})
	}
}

// If each namespace counted its own tasks only, it would fill the robot once more.
func TestScheduler_CountsRoomOnSharedRobotForAllNamespaces(t *testing.T) {
	s := newSharedScheduler()
	s.addRobots(robotFrom("fleet", "r1", 2, "a", "b"))
	s.addTasks(taskOf("a", "t", lifecycle.TaskRunning), taskOf("a", "u", lifecycle.TaskPending), taskOf("b", "t", lifecycle.TaskPending), taskOf("fleet", "t", lifecycle.TaskPending))
	s.decide(noon)
	if held := s.state.robots.getOrCreate("r1").reserved.Tasks; held != 2 {
		t.Errorf("%d tasks reserved, capacity 2", held)
	}
}

func TestScheduler_RotatesNamespaces(t *testing.T) {
	s := newSharedScheduler()
	s.addRobots(robotFrom("fleet", "r1", 1, "a", "b"))
	first := map[string]int{}
	for range 6 {
		waits := map[string]*v1alpha1.Task{}
		for _, namespace := range []string{"a", "b", "fleet"} {
			waits[namespace] = taskOf(namespace, "t", lifecycle.TaskPending)
			s.addTasks(waits[namespace])
		}
		s.decide(noon)
		for namespace, task := range waits {
			if s.robotFor(namespace, "t") != "" {
				first[namespace]++
			}
			s.state.removeTask(keyOf(task))
		}
	}
	for _, namespace := range []string{"a", "b", "fleet"} {
		if first[namespace] != 2 {
			t.Errorf("six reservations are divided as %v", first)
		}
	}
}

// A task that waits for a robot that is no longer shared must not start there. Running tasks
// go on.
func TestScheduler_PlacesNoNewTasksAfterSharingEnds(t *testing.T) {
	s := newSharedScheduler()
	s.addRobots(robotFrom("fleet", "r1", 3, "b"))
	s.addTasks(taskOf("b", "runs", lifecycle.TaskRunning), taskOf("b", "waits", lifecycle.TaskPending), taskOf("fleet", "own", lifecycle.TaskPending))
	s.decide(noon)
	if s.robotFor("b", "waits") != "r1" {
		t.Fatal("the shared robot was not reserved")
	}
	s.addRobots(robotFrom("fleet", "r1", 3))
	s.decide(noon)
	if got := s.robotFor("b", "waits"); got != "" {
		t.Errorf("the waiting task has a reservation on %s", got)
	}
	if s.robotFor("fleet", "own") != "r1" || s.robotFor("b", "runs") != "r1" || s.EvictionReason(key{Namespace: "b", Name: "runs"}) != "" {
		t.Error("another task lost its reservation")
	}
	if s.state.robots.getOrCreate("r1").reserved.Tasks != 2 {
		t.Errorf("%d tasks reserved", s.state.robots.getOrCreate("r1").reserved.Tasks)
	}
	if since := s.OnlineSince("b"); !since.IsZero() {
		t.Errorf("a namespace without a robot has had one online since %s", since)
	}
	if capable := s.state.hasCapableRobot(taskOf("b", "waits", lifecycle.TaskPending), nil); capable {
		t.Error("a robot that is no longer shared counts as capable")
	}
}

func TestScheduler_UsesNextRobotOfSameIDAfterDeletion(t *testing.T) {
	s := newSharedScheduler()
	younger := robotFrom("b", "r1", 2)
	younger.CreationTimestamp = metav1.NewTime(noon)
	s.addRobots(younger, robotFrom("fleet", "r1", 2))
	s.addTasks(taskOf("fleet", "runs", lifecycle.TaskRunning), taskOf("fleet", "waits", lifecycle.TaskPending), taskOf("b", "t", lifecycle.TaskPending))
	s.decide(noon)
	if s.robotFor("fleet", "waits") != "r1" || s.robotFor("b", "t") != "" {
		t.Fatal("the younger robot is used")
	}
	s.state.removeRobot(key{Namespace: "fleet", Name: "r1"})
	s.decide(noon)
	if s.robotFor("fleet", "waits") != "" || s.robotFor("b", "t") != "r1" {
		t.Error("the deleted robot is used")
	}
	if held := s.state.robots.getOrCreate("r1").reserved.Tasks; held != 2 {
		t.Errorf("%d tasks reserved; tasks that may still run there count", held)
	}
}

// Groups of two namespaces may have the same name.
func TestScheduler_SpreadsGroupByTasksOfItsNamespace(t *testing.T) {
	s := newTestScheduler(func() time.Time { return noon })
	busy := robotFrom("ns", "r2", 10)
	busy.Spec.Capacity["cpu"] = resource.MustParse("1")
	s.addRobots(robotFrom("ns", "r1", 10), busy)
	load := taskOf("ns", "load", lifecycle.TaskRunning, func(task *v1alpha1.Task) {
		cpu := resource.MustParse("900m")
		task.Spec.Resources = &v1alpha1.Resources{CPU: &cpu}
		task.Spec.TargetRobot, task.Status.Attempts[0].Robot = "r2", "r2"
	})
	other := newTask(lifecycle.TaskRunning) // of a group of the same name
	other.Namespace = "b"
	waits := newTask(lifecycle.TaskPending)
	waits.Name = "waits"
	s.addTasks(load, other, waits)
	s.decide(noon)
	if got := s.robotFor("ns", "waits"); got != "r1" {
		t.Errorf("placed on %q, which has more load", got)
	}
}

// newPreemptingTask returns a scheduler with a robot for two tasks, shared with ns and b, and a task of ns
// that may preempt.
func newPreemptingTask() (s *Scheduler, high *v1alpha1.Task) {
	s = newTestScheduler(func() time.Time { return noon })
	s.EnablePreemption()
	s.state.updateJob(runningJob(func(j *v1alpha1.JobSpec) { p := int32(90); j.Priority, j.Preemption = &p, true }))
	s.addRobots(robotFrom("fleet", "r1", 2, "ns", "b"))
	high = newTask(lifecycle.TaskPending)
	s.addTasks(high)
	return s, high
}

// Tenants choose their own priorities, so these must not stop the work of another tenant.
func TestScheduler_PreemptsOnlyWithinNamespace(t *testing.T) {
	s, _ := newPreemptingTask()
	theirs, also := taskOf("b", "theirs", lifecycle.TaskRunning), taskOf("fleet", "also", lifecycle.TaskRunning)
	s.addTasks(theirs, also)
	s.decide(noon)
	if why := s.EvictionReason(keyOf(theirs)) + s.EvictionReason(keyOf(also)); why != "" {
		t.Errorf("a task of another namespace is preempted: %s", why)
	}
}

// Otherwise each task that it stops would make room for another namespace, until all are
// stopped.
func TestScheduler_ReservesVacatedRobotForPreemptingNamespace(t *testing.T) {
	for turns := range 2 { // of either namespace when there is room
		s, high := newPreemptingTask()
		low := taskOf("ns", "low", lifecycle.TaskRunning)
		s.addTasks(low, taskOf("b", "theirs", lifecycle.TaskRunning))
		s.decide(noon)
		if s.EvictionReason(keyOf(low)) == "" {
			t.Fatal("no task of its own namespace is preempted")
		}
		s.addTasks(taskOf("b", "waits", lifecycle.TaskPending))
		for range turns {
			s.decide(noon)
		}
		low.Status.State, low.Status.Attempts[0].FinishedAt = "canceled", &metav1.MicroTime{Time: noon}
		s.addTasks(low)
		s.decide(noon)
		if got, other := s.robotFor("ns", high.Name), s.robotFor("b", "waits"); got != "r1" || other != "" {
			t.Errorf("preempting task: robot %q, the other: robot %q", got, other)
		}
		s.state.removeTask(keyOf(high))
		s.decide(noon)
		if s.robotFor("b", "waits") != "r1" || len(s.state.preemptions.reservedFor) != 0 {
			t.Errorf("robots are still reserved: %v", s.state.preemptions.reservedFor)
		}
	}
}
