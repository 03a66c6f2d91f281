package scheduler

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/placement"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// If a lost run held no room, the next task would share the robot with the old process.
func TestLostRuns_HoldRoomUntilTheyHaveEnded(t *testing.T) {
	const stop = wire.DefaultKillTimeout + stopGrace
	for _, c := range []struct {
		name  string
		then  func(*abandoned)
		holds int64
	}{
		{"it may come back", func(a *abandoned) { a.returns(a.mayBeRestored); a.comes(time.Hour); a.pass(time.Hour) }, 1},
		{"the lost attempt is discarded, its robot has its time to end it", func(a *abandoned) {
			a.returns(a.mayBeRestored)
			a.comes(time.Hour)
			a.pass(time.Hour)
			a.is(a.discarded)
			a.pass(stop - time.Second)
		}, 1},
		{"and no longer", func(a *abandoned) {
			a.returns(a.mayBeRestored)
			a.comes(time.Hour)
			a.is(a.discarded)
			a.pass(stop)
		}, 0},
		{"it is restored: its room is the task's own", func(a *abandoned) { a.returns(a.mayBeRestored); a.comes(time.Hour); a.is(a.restored) }, 1},
		{"the task was canceled while its robot is offline", func(a *abandoned) { a.is(a.canceled); a.pass(time.Hour) }, 1},
		{"the task was defined anew, and the old run is as large as it was", func(a *abandoned) { a.returns(a.larger) }, 1},
		{"never restored: as long as its robot is offline", func(a *abandoned) { a.returns(nothing); a.pass(time.Hour) }, 1},
		{"its robot is back, and has not ended it", func(a *abandoned) { a.returns(nothing); a.comes(time.Hour); a.pass(stop - time.Second) }, 1},
		{"its robot must have ended it", func(a *abandoned) { a.returns(nothing); a.comes(time.Hour); a.pass(stop) }, 0},
		{"its robot was back too shortly", func(a *abandoned) {
			a.returns(nothing)
			a.comes(time.Hour)
			a.goes(stop - time.Second)
			a.comes(time.Hour)
			a.pass(stop - time.Second)
		}, 1},
		{"its robot must have ended it, whatever else is new of it", func(a *abandoned) {
			a.returns(nothing)
			a.comes(time.Hour)
			a.pass(time.Second)
			a.s.state.updateRobot(named(robotIn(lifecycle.RobotOnline), "r1", 2))
			a.pass(stop - time.Second)
		}, 0},
		{"its robot has reported its end", func(a *abandoned) { a.returns(nothing); a.comes(time.Hour); a.is(a.ended) }, 0},
		{"what is over takes no room again", func(a *abandoned) { a.returns(nothing); a.comes(time.Hour); a.pass(stop); a.is(nothing) }, 0},
		{"the task is gone while its robot is offline", func(a *abandoned) { a.returns(nothing); a.gone(); a.pass(time.Hour) }, 1},
		{"the task is gone, and its robot must have ended it", func(a *abandoned) { a.returns(nothing); a.gone(); a.comes(time.Hour); a.pass(stop) }, 0},
		{"the task is gone, and the next one has its name", func(a *abandoned) { a.returns(nothing); a.is(a.next); a.pass(time.Hour) }, 1},
		{"the task was canceled and is gone, and the next one has its name", func(a *abandoned) { a.is(a.canceled); a.is(a.next); a.pass(time.Hour) }, 1},
		{"task and robot are gone", func(a *abandoned) { a.returns(nothing); a.gone(); a.s.state.removeRobot(a.r1()); a.pass(0) }, 0},
		{"it has left the task's history, and its robot is gone", func(a *abandoned) {
			a.returns(nothing)
			a.is(a.forgotten)
			a.s.state.removeRobot(a.r1())
			a.pass(0)
		}, 0},
		{"it has left the task's history", func(a *abandoned) {
			a.returns(nothing)
			a.comes(time.Hour)
			a.is(a.forgotten)
			a.pass(stop - time.Second)
		}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := abandon()
			c.then(a)
			var held placement.Room
			if r := a.s.state.robots.byID["r1"]; r != nil {
				held = r.reserved
			}
			if held.Tasks != c.holds || held.CPU != 0 {
				t.Errorf("it holds %+v, want %d tasks", held, c.holds)
			}
		})
	}
}

// abandoned is a task that ran on r1, which is offline.
type abandoned struct {
	s    *Scheduler
	now  time.Time
	task *v1alpha1.Task
}

func abandon() *abandoned {
	a := &abandoned{now: noon}
	a.s = newTestScheduler(func() time.Time { return a.now })
	a.robot(lifecycle.RobotOnline)
	a.task = newTask(lifecycle.TaskRunning)
	a.task.UID = "1"
	a.s.state.updateTask(a.task)
	a.goes(0)
	return a
}

func nothing() {}

// returns makes it wait for another robot.
func (a *abandoned) returns(change func()) {
	a.is(func() {
		a.task.Status.State, a.task.Spec.TargetRobot = string(lifecycle.TaskPending), ""
		change()
	})
}

func (a *abandoned) r1() key { return key{Namespace: "ns", Name: "r1"} }

func (a *abandoned) robot(p lifecycle.RobotPhase) { a.s.state.updateRobot(named(robotIn(p), "r1", 1)) }

func (a *abandoned) comes(in time.Duration) { a.pass(in); a.robot(lifecycle.RobotOnline); a.pass(0) }
func (a *abandoned) goes(in time.Duration)  { a.pass(in); a.robot(lifecycle.RobotOffline); a.pass(0) }

func (a *abandoned) pass(d time.Duration) {
	a.now = a.now.Add(d)
	a.s.state.advanceTime(a.now)
}

func (a *abandoned) is(change func()) {
	a.task = a.task.DeepCopy()
	change()
	a.s.state.updateTask(a.task)
}

func (a *abandoned) gone()          { a.s.state.removeTask(keyOf(a.task)) }
func (a *abandoned) mayBeRestored() { a.task.Status.LostAttempt = 1 }
func (a *abandoned) discarded()     { a.task.Status.LostAttempt = 0 }
func (a *abandoned) forgotten()     { a.task.Status.Attempts = nil }
func (a *abandoned) canceled()      { a.task.Status.State = string(lifecycle.TaskCanceled) }
func (a *abandoned) ended()         { a.task.Status.Attempts[0].FinishedAt = &metav1.MicroTime{Time: a.now} }
func (a *abandoned) restored()      { a.discarded(); a.task.Status.State = string(lifecycle.TaskRunning) }

// next is another task of the same name, on another robot.
func (a *abandoned) next() {
	a.task.UID, a.task.Status.State, a.task.Status.Attempts[0].Robot = "2", string(lifecycle.TaskRunning), "r2"
}

func (a *abandoned) larger() {
	cpu := resource.MustParse("1")
	a.task.Spec.Resources = &v1alpha1.Resources{CPU: &cpu}
}

// A change that is not expected would wait for the ticker, a minute.
func TestNextChange_IsEndOfStoppingRun(t *testing.T) {
	a := abandon()
	a.returns(a.mayBeRestored)
	a.is(func() {
		s := &a.task.Status
		s.State, s.Attempt = string(lifecycle.TaskRunning), 2
		s.Attempts = append(s.Attempts, v1alpha1.TaskAttempt{Attempt: 2, Robot: "r2"})
	})
	a.comes(time.Hour)
	a.s.decide(a.now)
	a.is(a.discarded)
	if got, want := a.s.state.nextChange(), a.now.Add(wire.DefaultKillTimeout+stopGrace); !got.Equal(want) || !a.s.state.dirty.isSet {
		t.Errorf("next change at %s, want %s; dirty: %v", got, want, a.s.state.dirty.isSet)
	}
	if a.goes(0); !a.s.state.nextChange().IsZero() {
		t.Error("a change is expected although the robot is offline")
	}
}

// A new attempt on the robot of the lost attempt would end it, although it may be restored.
func TestScheduler_AvoidsRobotOfLostAttempt(t *testing.T) {
	a := abandon()
	a.returns(a.mayBeRestored)
	a.s.state.updateJob(running(nil))
	a.s.state.updateRobot(named(robotIn(lifecycle.RobotOnline), "r1", 2))
	a.s.decide(a.now)
	if robot, why := a.s.Assignment(keyOf(a.task)); robot != "" || !strings.Contains(why.String(), "the task failed on it") {
		t.Errorf("reserved %q, %s", robot, why)
	}
}

// It may wait for an hour, and nothing of the task runs on its robot.
func TestClusterState_FailedTaskWithLostAttemptHoldsNoRoom(t *testing.T) {
	s := withRobots("r1", "r2")
	held := func(robot string) int64 { return s.state.robots.byID[robot].reserved.Tasks }
	task := newTask(lifecycle.TaskExited, replaced)
	s.state.updateTask(task)
	if held("r1") != 1 || held("r2") != 1 {
		t.Fatalf("r1 holds %d tasks, r2 %d", held("r1"), held("r2"))
	}
	awaitsLostAttempt(task)
	s.state.updateTask(task)
	if held("r1") != 1 || held("r2") != 0 {
		t.Errorf("r1, which has the lost attempt, holds %d tasks, r2 %d", held("r1"), held("r2"))
	}
}
