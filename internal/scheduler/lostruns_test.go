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
		then  func(*lostTask)
		holds int64
	}{
		{"it may come back", func(a *lostTask) { a.interruptTask(a.setLostAttempt); a.connectRobot(time.Hour); a.passTime(time.Hour) }, 1},
		{"the lost attempt is discarded, its robot has its time to end it", func(a *lostTask) {
			a.interruptTask(a.setLostAttempt)
			a.connectRobot(time.Hour)
			a.passTime(time.Hour)
			a.updateTask(a.discardLostAttempt)
			a.passTime(stop - time.Second)
		}, 1},
		{"and no longer", func(a *lostTask) {
			a.interruptTask(a.setLostAttempt)
			a.connectRobot(time.Hour)
			a.updateTask(a.discardLostAttempt)
			a.passTime(stop)
		}, 0},
		{"it is restored: its room is the task's own", func(a *lostTask) {
			a.interruptTask(a.setLostAttempt)
			a.connectRobot(time.Hour)
			a.updateTask(a.restoreAttempt)
		}, 1},
		{"the task was canceled while its robot is offline", func(a *lostTask) { a.updateTask(a.cancelTask); a.passTime(time.Hour) }, 1},
		{"the task has a new definition, and the old run keeps its room", func(a *lostTask) { a.interruptTask(a.growTask) }, 1},
		{"never restored: as long as its robot is offline", func(a *lostTask) { a.interruptTask(noChange); a.passTime(time.Hour) }, 1},
		{"its robot is back, and has not ended it", func(a *lostTask) {
			a.interruptTask(noChange)
			a.connectRobot(time.Hour)
			a.passTime(stop - time.Second)
		}, 1},
		{"its robot must have ended it", func(a *lostTask) { a.interruptTask(noChange); a.connectRobot(time.Hour); a.passTime(stop) }, 0},
		{"its robot was back too shortly", func(a *lostTask) {
			a.interruptTask(noChange)
			a.connectRobot(time.Hour)
			a.disconnectRobot(stop - time.Second)
			a.connectRobot(time.Hour)
			a.passTime(stop - time.Second)
		}, 1},
		{"its robot must have ended it, whatever else is new of it", func(a *lostTask) {
			a.interruptTask(noChange)
			a.connectRobot(time.Hour)
			a.passTime(time.Second)
			a.s.state.updateRobot(named(robotIn(lifecycle.RobotOnline), "r1", 2))
			a.passTime(stop - time.Second)
		}, 0},
		{"its robot has reported its end", func(a *lostTask) { a.interruptTask(noChange); a.connectRobot(time.Hour); a.updateTask(a.endAttempt) }, 0},
		{"what is over takes no room again", func(a *lostTask) {
			a.interruptTask(noChange)
			a.connectRobot(time.Hour)
			a.passTime(stop)
			a.updateTask(noChange)
		}, 0},
		{"the task is gone while its robot is offline", func(a *lostTask) { a.interruptTask(noChange); a.deleteTask(); a.passTime(time.Hour) }, 1},
		{"the task is gone, and its robot must have ended it", func(a *lostTask) {
			a.interruptTask(noChange)
			a.deleteTask()
			a.connectRobot(time.Hour)
			a.passTime(stop)
		}, 0},
		{"the task is gone, and the next one has its name", func(a *lostTask) { a.interruptTask(noChange); a.updateTask(a.startNextAttempt); a.passTime(time.Hour) }, 1},
		{"the task was canceled and is gone, and the next one has its name", func(a *lostTask) { a.updateTask(a.cancelTask); a.updateTask(a.startNextAttempt); a.passTime(time.Hour) }, 1},
		{"task and robot are gone", func(a *lostTask) {
			a.interruptTask(noChange)
			a.deleteTask()
			a.s.state.removeRobot(a.r1())
			a.passTime(0)
		}, 0},
		{"it has left the task's history, and its robot is gone", func(a *lostTask) {
			a.interruptTask(noChange)
			a.updateTask(a.clearAttempts)
			a.s.state.removeRobot(a.r1())
			a.passTime(0)
		}, 0},
		{"it has left the task's history", func(a *lostTask) {
			a.interruptTask(noChange)
			a.connectRobot(time.Hour)
			a.updateTask(a.clearAttempts)
			a.passTime(stop - time.Second)
		}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := newLostTask()
			c.then(a)
			var held placement.Room
			if r := a.s.state.robots.byID["r1"]; r != nil {
				held = r.reserved
			}
			if held.Tasks != c.holds || held.CPU != 0 {
				t.Errorf("reserved %+v, want %d tasks", held, c.holds)
			}
		})
	}
}

// lostTask is a task that ran on r1, which is offline.
type lostTask struct {
	s    *Scheduler
	now  time.Time
	task *v1alpha1.Task
}

func newLostTask() *lostTask {
	a := &lostTask{now: noon}
	a.s = newTestScheduler(func() time.Time { return a.now })
	a.setRobotPhase(lifecycle.RobotOnline)
	a.task = newTask(lifecycle.TaskRunning)
	a.task.UID = "1"
	a.s.state.updateTask(a.task)
	a.disconnectRobot(0)
	return a
}

func noChange() {}

// interruptTask makes it wait for another robot.
func (a *lostTask) interruptTask(change func()) {
	a.updateTask(func() {
		a.task.Status.State, a.task.Spec.TargetRobot = string(lifecycle.TaskPending), ""
		change()
	})
}

func (a *lostTask) r1() key { return key{Namespace: "ns", Name: "r1"} }

func (a *lostTask) setRobotPhase(p lifecycle.RobotPhase) {
	a.s.state.updateRobot(named(robotIn(p), "r1", 1))
}

func (a *lostTask) connectRobot(in time.Duration) {
	a.passTime(in)
	a.setRobotPhase(lifecycle.RobotOnline)
	a.passTime(0)
}
func (a *lostTask) disconnectRobot(in time.Duration) {
	a.passTime(in)
	a.setRobotPhase(lifecycle.RobotOffline)
	a.passTime(0)
}

func (a *lostTask) passTime(d time.Duration) {
	a.now = a.now.Add(d)
	a.s.state.advanceTime(a.now)
}

func (a *lostTask) updateTask(change func()) {
	a.task = a.task.DeepCopy()
	change()
	a.s.state.updateTask(a.task)
}

func (a *lostTask) deleteTask()         { a.s.state.removeTask(keyOf(a.task)) }
func (a *lostTask) setLostAttempt()     { a.task.Status.LostAttempt = 1 }
func (a *lostTask) discardLostAttempt() { a.task.Status.LostAttempt = 0 }
func (a *lostTask) clearAttempts()      { a.task.Status.Attempts = nil }
func (a *lostTask) cancelTask()         { a.task.Status.State = string(lifecycle.TaskCanceled) }
func (a *lostTask) endAttempt() {
	a.task.Status.Attempts[0].FinishedAt = &metav1.MicroTime{Time: a.now}
}
func (a *lostTask) restoreAttempt() {
	a.discardLostAttempt()
	a.task.Status.State = string(lifecycle.TaskRunning)
}

// startNextAttempt adds another task of the same name, on another robot.
func (a *lostTask) startNextAttempt() {
	a.task.UID, a.task.Status.State, a.task.Status.Attempts[0].Robot = "2", string(lifecycle.TaskRunning), "r2"
}

func (a *lostTask) growTask() {
	cpu := resource.MustParse("1")
	a.task.Spec.Resources = &v1alpha1.Resources{CPU: &cpu}
}

// A change that is not expected would wait for the ticker, a minute.
func TestNextChange_IsEndOfStoppingRun(t *testing.T) {
	a := newLostTask()
	a.interruptTask(a.setLostAttempt)
	a.updateTask(func() {
		s := &a.task.Status
		s.State, s.Attempt = string(lifecycle.TaskRunning), 2
		s.Attempts = append(s.Attempts, v1alpha1.TaskAttempt{Attempt: 2, Robot: "r2"})
	})
	a.connectRobot(time.Hour)
	a.s.decide(a.now)
	a.updateTask(a.discardLostAttempt)
	if got, want := a.s.state.nextChange(), a.now.Add(wire.DefaultKillTimeout+stopGrace); !got.Equal(want) || !a.s.state.dirty.isSet {
		t.Errorf("next change at %s, want %s; dirty: %v", got, want, a.s.state.dirty.isSet)
	}
	if a.disconnectRobot(0); !a.s.state.nextChange().IsZero() {
		t.Error("nextChange is set although the robot is offline")
	}
}

// A new attempt on the robot of the lost attempt would end it, although it may be restored.
func TestScheduler_AvoidsRobotOfLostAttempt(t *testing.T) {
	a := newLostTask()
	a.interruptTask(a.setLostAttempt)
	a.s.state.updateJob(runningJob(nil))
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
		t.Fatalf("%d tasks reserved on r1, %d on r2", held("r1"), held("r2"))
	}
	awaitsLostAttempt(task)
	s.state.updateTask(task)
	if held("r1") != 1 || held("r2") != 0 {
		t.Errorf("with the lost attempt on r1: %d tasks reserved on r1, %d on r2", held("r1"), held("r2"))
	}
}
