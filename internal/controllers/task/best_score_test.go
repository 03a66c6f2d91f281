package task

import (
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/scheduler"
)

// robotReturn is a task of reconcile mode best_score that runs on r2, while r1, the robot of its lost
// attempt, reconnects. Another task runs on crowded, so placement prefers the other robot.
type robotReturn struct {
	*Controller
	t         *testing.T
	scheduler *scheduler.Scheduler
	task      client.ObjectKey
}

func newRobotReturn(t *testing.T, crowded string) *robotReturn {
	w := newInput(lifecycle.TaskRunning, replaced("unknown", noon.Add(-time.Hour), noon.Add(-time.Minute)), placedByManager, reconciles(v1alpha1.ReconcileBestScore))
	w.Task.UID, w.Job.Namespace, w.Job.UID, w.Task.OwnerReferences = "t", "ns", "j", nil
	other := newInput(lifecycle.TaskRunning, target(crowded)).Task
	other.Name, other.UID, other.OwnerReferences, other.Status.Attempts[0].Robot = "other", "other", nil, crowded
	r1, r2 := named(robotIn(lifecycle.RobotUnknown), "r1", 10), named(robotIn(lifecycle.RobotOnline), "r2", 10)
	c := newController(t, w.Task, w.Job, r1, r2)
	s := scheduler.New(c.Now, logr.Discard())
	s.JobHandler().OnAdd(w.Job, true)
	for _, robot := range []*v1alpha1.Robot{r1, r2} {
		s.RobotHandler().OnAdd(robot, true)
	}
	for _, task := range []*v1alpha1.Task{w.Task, other} {
		s.TaskHandler().OnAdd(task, true)
	}
	c.Scheduler, c.Recorder = s, events.NewFakeRecorder(10)
	return &robotReturn{Controller: c, t: t, scheduler: s, task: client.ObjectKeyFromObject(w.Task)}
}

// setRobot writes the phase of r1, and returns the step in which the scheduler observes it.
func (r *robotReturn) setRobot(p lifecycle.RobotPhase, connected metav1.ConditionStatus) (observe func()) {
	var robot v1alpha1.Robot
	r.read(client.ObjectKey{Namespace: "ns", Name: "r1"}, &robot)
	robot.Status.Phase = string(p)
	robot.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionConnected, Status: connected}}
	if err := r.Update(r.t.Context(), &robot); err != nil {
		r.t.Fatal(err)
	}
	return func() { r.scheduler.RobotHandler().OnUpdate(&robot, &robot) }
}

// reportRunning writes that the lost attempt runs, and returns the step in which the scheduler
// observes it. It does nothing once the manager has decided.
func (r *robotReturn) reportRunning(event string) (observe func()) {
	var task v1alpha1.Task
	r.read(r.task, &task)
	if task.Status.LostAttempt == 0 {
		return func() {}
	}
	task.Status.Attempts[0].State = string(lifecycle.TaskRunning)
	task.Status.Events = append(task.Status.Events, v1alpha1.TaskEvent{Type: event})
	if err := r.Status().Update(r.t.Context(), &task); err != nil {
		r.t.Fatal(err)
	}
	return func() { r.scheduler.TaskHandler().OnUpdate(&task, &task) }
}

func (r *robotReturn) read(k client.ObjectKey, o client.Object) {
	if err := r.Get(r.t.Context(), k, o); err != nil {
		r.t.Fatal(err)
	}
}

// runSteps runs the steps of the heartbeat and of the report in an order of their initials, with a
// reconciliation after each. It returns the attempt that was kept; zero if it is not decided.
func (r *robotReturn) runSteps(order []byte) (kept int32) {
	var observeRobot, observeTask func()
	steps := map[byte][]func(){
		'h': {
			func() { observeRobot = r.setRobot(lifecycle.RobotUnknown, metav1.ConditionTrue) }, func() { observeRobot() },
			func() { observeRobot = r.setRobot(lifecycle.RobotOnline, metav1.ConditionTrue) }, func() { observeRobot() },
		},
		'r': {
			func() { observeTask = r.reportRunning("Started") }, func() { observeTask() },
			func() { observeTask = r.reportRunning("Usage") }, func() { observeTask() },
		},
	}
	for _, message := range order {
		steps[message][0]()
		steps[message] = steps[message][1:]
		if _, err := r.Reconcile(r.t.Context(), reconcile.Request{NamespacedName: r.task}); err != nil {
			r.t.Fatal(err)
		}
	}
	var task v1alpha1.Task
	r.read(r.task, &task)
	if task.Status.LostAttempt != 0 {
		return 0
	}
	return task.Status.Attempt
}

// interleavings returns all orders of n times 'h' and m times 'r'.
func interleavings(n, m int) (orders [][]byte) {
	if n+m == 0 {
		return [][]byte{nil}
	}
	if n > 0 {
		for _, rest := range interleavings(n-1, m) {
			orders = append(orders, slices.Concat([]byte("h"), rest))
		}
	}
	if m > 0 {
		for _, rest := range interleavings(n, m-1) {
			orders = append(orders, slices.Concat([]byte("r"), rest))
		}
	}
	return orders
}

// The heartbeat and the report of a returning robot arrive in any order, and the scheduler may observe
// each of them later than the controller.
func TestReconcile_BestScoreKeepsBetterRobotInAnyOrder(t *testing.T) {
	for _, c := range []struct {
		name, crowded string
		want          int32
	}{
		{"the lost attempt is on the better robot", "r2", 1},
		{"the replacement is on the better robot", "r1", 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			orders, right := interleavings(4, 4), 0
			for _, order := range orders {
				if kept := newRobotReturn(t, c.crowded).runSteps(order); kept == c.want {
					right++
				} else {
					t.Errorf("order %s: attempt %d was kept, want %d", order, kept, c.want)
				}
			}
			if right != 70 {
				t.Errorf("%d of %d orders right, want 70 of 70", right, len(orders))
			}
		})
	}
}

// A robot that reconnects wakes the tasks whose lost attempt it has.
func TestRobotsOfTask(t *testing.T) {
	for _, c := range []struct {
		name string
		in   Input
		want []string
	}{
		{"a running task", newInput(lifecycle.TaskRunning), []string{"r1"}},
		{"a task with a lost attempt", newInput(lifecycle.TaskRunning, replaced("unknown", noon, noon)), []string{"r2", "r1"}},
		{"a task that has ended", newInput(lifecycle.TaskCompleted, replaced("unknown", noon, noon)), nil},
	} {
		if got := robotsOfTask(c.in.Task); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
