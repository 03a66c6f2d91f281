package scheduler

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/placement"
	"k8s4r.io/k8s4r/internal/core/placement/apiconv"
	"k8s4r.io/k8s4r/internal/core/taskstate"
)

// stopGrace is added to a task's kill timeout, because the stop must reach the robot first.
const stopGrace = 5 * time.Second

// lostRun is the run of an attempt that is not the current one or whose Task was deleted, and
// that may still be running. It keeps its room until its robot has reported the end, or has been
// online for so long that the run must have ended.
type lostRun struct {
	robot     string
	room      placement.Room
	stopTime  time.Duration // how long the robot may take to stop it
	stoppedAt time.Time     // when its stop was decided; zero: it may be restored
	orphaned  bool          // no Task will report its end
	ended     bool          // its room is released
}

// taskRuns are the lost runs of one Task, by attempt. An ended run stays until the Task
// shows its end, so that an event in between does not reserve its room again.
type taskRuns struct {
	uid       types.UID
	byAttempt map[int32]*lostRun
}

// lostRuns holds the lost runs of all Tasks. It is guarded by Scheduler.mu.
type lostRuns struct {
	now    func() time.Time
	dirty  *dirtyFlag
	robots *robotIndex

	byTask   map[key]taskRuns
	stopping []*lostRun // all runs with a stoppedAt
}

func newLostRuns(now func() time.Time, dirty *dirtyFlag, robots *robotIndex) *lostRuns {
	return &lostRuns{now: now, dirty: dirty, robots: robots, byTask: map[key]taskRuns{}}
}

// observeTask updates the runs of a Task. The entry is that of its current attempt, or nil.
func (x *lostRuns) observeTask(t *v1alpha1.Task, current *taskEntry) {
	k := keyOf(t)
	old := x.byTask[k]
	if old.uid != t.UID { // the earlier Task was deleted while the watch was down
		x.orphanTask(k)
		old = taskRuns{}
	}
	open := taskstate.OtherOpenAttempts(t)
	if len(open)+len(old.byAttempt) == 0 {
		return // the usual case
	}
	runs := taskRuns{uid: t.UID, byAttempt: map[int32]*lostRun{}}
	for _, a := range open {
		r := old.byAttempt[a.Attempt]
		if r == nil {
			r = x.addRun(t, a.Robot, current)
		}
		if !taskstate.CanBeRestored(t, a) {
			x.stopRun(r)
		}
		runs.byAttempt[a.Attempt] = r
	}
	if delete(x.byTask, k); len(runs.byAttempt) > 0 {
		x.byTask[k] = runs
	}
	for attempt, r := range old.byAttempt {
		switch {
		case runs.byAttempt[attempt] != nil:
		case t.Status.FindAttempt(attempt) == nil: // it has left the history
			x.orphanRun(r)
		default: // it has ended, or is the current attempt again
			x.endRun(r)
		}
	}
}

// addRun reserves room for a run. The room is that of the current attempt if it ran there,
// because the Task may have a new definition since.
func (x *lostRuns) addRun(t *v1alpha1.Task, robot string, current *taskEntry) *lostRun {
	task := apiconv.TaskOf(t)
	r := &lostRun{robot: robot, room: task.Room(), stopTime: taskstate.KillTimeout(t) + stopGrace}
	if current != nil && current.dispatched && current.robot == robot {
		r.room, r.stopTime = current.Room(), current.killTimeout+stopGrace
	}
	x.robots.reserveRoom(r.robot, r.room)
	return r
}

// addOrphan reserves room for the current attempt of a deleted Task.
func (x *lostRuns) addOrphan(e *taskEntry) {
	r := &lostRun{robot: e.robot, room: e.Room(), stopTime: e.killTimeout + stopGrace}
	x.robots.reserveRoom(r.robot, r.room)
	x.orphanRun(r)
}

// stopRun records that a run is being stopped, which starts the time until it must have ended.
func (x *lostRuns) stopRun(r *lostRun) {
	if r.stoppedAt.IsZero() {
		r.stoppedAt = x.now()
		x.dirty.set()
		x.stopping = append(x.stopping, r)
	}
}

// endRun releases the room of a run.
func (x *lostRuns) endRun(r *lostRun) {
	if !r.ended {
		r.ended = true
		x.robots.releaseRoom(r.robot, r.room)
	}
}

// orphanRun marks a run whose end no Task will report.
func (x *lostRuns) orphanRun(r *lostRun) {
	r.orphaned = true
	x.stopRun(r)
}

// orphanTask marks all runs of a deleted Task.
func (x *lostRuns) orphanTask(k key) {
	for _, r := range x.byTask[k].byAttempt {
		x.orphanRun(r)
	}
	delete(x.byTask, k)
}

// endTime returns when a stopping run must have ended. Zero if it has ended, or if its robot is
// not online and so has not received the stop.
func (x *lostRuns) endTime(r *lostRun) time.Time {
	robot := x.robots.byID[r.robot]
	switch {
	case r.ended || !robot.isOnline():
		return time.Time{}
	case robot.onlineSince.After(r.stoppedAt):
		return robot.onlineSince.Add(r.stopTime)
	}
	return r.stoppedAt.Add(r.stopTime)
}

// mustHaveEnded reports whether a run must have ended although its robot has not reported the end.
// An orphan on a deleted robot counts as ended; otherwise orphans would pile up.
func (x *lostRuns) mustHaveEnded(r *lostRun, now time.Time) bool {
	if at := x.endTime(r); !at.IsZero() {
		return !now.Before(at)
	}
	return r.orphaned && !x.robots.byID[r.robot].hasObject()
}

// expireRuns ends the runs that must have ended by now.
func (x *lostRuns) expireRuns(now time.Time) {
	x.stopping = slices.DeleteFunc(x.stopping, func(r *lostRun) bool {
		if !r.ended && x.mustHaveEnded(r, now) {
			x.endRun(r)
		}
		return r.ended
	})
}
