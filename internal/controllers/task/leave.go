package task

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/demand"
	"k8s4r.io/k8s4r/internal/lifecycle"
	"k8s4r.io/k8s4r/internal/placement"
	"k8s4r.io/k8s4r/internal/wire"
)

// grace is what a robot gets beyond a task's kill timeout to end a run of which
// it has to hear first that it is to.
const grace = 5 * time.Second

// run is an attempt that does not count, or whose Task is gone, and may still
// run. It holds room until its robot has said that it has ended, or has been in
// contact for so long that it must have: the next task would share a real robot
// with the old process, or room would be lost for ever where nobody ever says so.
type run struct {
	robot  string
	room   placement.Room
	stop   time.Duration // what the robot needs to end it
	called time.Time     // when it was called off; zero: it may count again
	orphan bool          // nobody will say any more how it ends
	over   bool          // it holds no room any more
}

// runs are those of one Task, by attempt. They stay when they are over, until the
// Task says so too: or each of its events would take their room once more.
type runs struct {
	uid types.UID
	by  map[int32]*run
}

// seeRuns takes in which attempts of a Task do not count and may still run.
func (l *ledger) seeRuns(k key, t *v1alpha1.Task) {
	old := l.runs[k]
	if old.uid != t.UID { // the watch was cut off and shows no deletion
		l.orphans(k)
		old = runs{}
	}
	open := openRuns(t)
	if len(open)+len(old.by) == 0 {
		return // as most Tasks, most of the time
	}
	now := runs{uid: t.UID, by: map[int32]*run{}}
	for _, a := range open {
		r := old.by[a.Attempt]
		if r == nil {
			r = l.begin(k, t, a.Robot)
		}
		if !mayReturn(t, a) {
			l.callOff(r)
		}
		now.by[a.Attempt] = r
	}
	if delete(l.runs, k); len(now.by) > 0 {
		l.runs[k] = now
	}
	for attempt, r := range old.by {
		switch {
		case now.by[attempt] != nil:
		case t.Status.Entry(attempt) == nil: // out of the history
			l.orphan(r)
		default: // it has ended, or its room is the Task's own again
			l.end(r)
		}
	}
}

// openRuns are the attempts of a Task that hold room beside the one that counts.
func openRuns(t *v1alpha1.Task) (open []*v1alpha1.TaskAttempt) {
	active := lifecycle.TaskState(t.Status.State).Active()
	for i := range t.Status.Attempts {
		a := &t.Status.Attempts[i]
		if counts := active && a.Attempt == t.Status.Attempt; a.FinishedAt == nil && a.Robot != "" && !counts {
			open = append(open, a)
		}
	}
	return open
}

// mayReturn tells whether an attempt is an original that may count again.
func mayReturn(t *v1alpha1.Task, a *v1alpha1.TaskAttempt) bool {
	return a.Attempt == t.Status.Original && t.DeletionTimestamp == nil && !lifecycle.TaskState(t.Status.State).Terminal()
}

// originalOn is the robot of the original that may count again. Empty: there is none.
func originalOn(t *v1alpha1.Task) string {
	if a := t.Status.Entry(t.Status.Original); a != nil && a.FinishedAt == nil && mayReturn(t, a) {
		return a.Robot
	}
	return ""
}

// begin takes room for a run: what it had when it counted, for the Task may be
// defined anew since.
func (l *ledger) begin(k key, t *v1alpha1.Task, robot string) *run {
	task := demand.Of(t)
	r := &run{robot: robot, room: task.Room(), stop: killTimeout(t) + grace}
	if e := l.entries[k]; e != nil && e.onRobot && e.seat == robot {
		r.room, r.stop = e.Room(), e.killTimeout+grace
	}
	l.take(r.robot, r.room)
	return r
}

// callOff begins the time after which a run must have ended.
func (l *ledger) callOff(r *run) {
	if r.called.IsZero() {
		r.called, l.changed = l.now(), true
		l.leaving = append(l.leaving, r)
	}
}

// end gives the room of a run back.
func (l *ledger) end(r *run) {
	if !r.over {
		r.over = true
		l.free(r.robot, r.room)
	}
}

// orphan takes in that nobody will say any more how a run ends.
func (l *ledger) orphan(r *run) {
	r.orphan = true
	l.callOff(r)
}

// orphans takes in that a Task is gone, and forgets it.
func (l *ledger) orphans(k key) {
	for _, r := range l.runs[k].by {
		l.orphan(r)
	}
	delete(l.runs, k)
}

// leave takes in that a Task is gone. Its runs do not go by its name, which the
// next Task of its replica has at once.
func (l *ledger) leave(k key) {
	if e := l.entries[k]; e != nil && e.onRobot {
		r := &run{robot: e.seat, room: e.Room(), stop: e.killTimeout + grace}
		l.take(r.robot, r.room)
		l.orphan(r)
	}
	l.orphans(k)
	l.unprepare(k)
	l.drop(k)
}

// endsAt is when a run that was called off must have ended. Zero: its robot is
// not in contact, and has not heard of it.
func (l *ledger) endsAt(r *run) time.Time {
	robot := l.robots[r.robot]
	switch {
	case r.over || !robot.inContact():
		return time.Time{}
	case robot.since.After(r.called):
		return robot.since.Add(r.stop)
	}
	return r.called.Add(r.stop)
}

// mustBeOver tells whether a run holds no room any more without anybody's word. An
// orphan on a robot that has no object is forgotten: they would pile up with every
// robot that is ever taken away.
func (l *ledger) mustBeOver(r *run, now time.Time) bool {
	if at := l.endsAt(r); !at.IsZero() {
		return !now.Before(at)
	}
	return r.orphan && !l.robots[r.robot].known()
}

// pass takes in what time alone has changed.
func (l *ledger) pass(now time.Time) {
	l.leaving = slices.DeleteFunc(l.leaving, func(r *run) bool {
		if !r.over && l.mustBeOver(r, now) {
			l.end(r)
		}
		return r.over
	})
	maps.DeleteFunc(l.gathers, func(_ replica, until time.Time) bool {
		over := !now.Before(until)
		l.changed = l.changed || over
		return over
	})
	for _, e := range l.waiting {
		if !e.ready.IsZero() && !now.Before(e.ready) {
			e.ready, l.changed = time.Time{}, true
		}
	}
}

// next is when time alone changes something. Zero: not foreseen.
func (l *ledger) next() time.Time {
	var at time.Time
	earlier := func(t time.Time) {
		if !t.IsZero() && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	for _, r := range l.leaving {
		earlier(l.endsAt(r))
	}
	for _, e := range l.waiting {
		earlier(e.ready)
	}
	for _, until := range l.gathers {
		earlier(until)
	}
	return at
}

// killTimeout is how long a task's robot lets it end by itself.
func killTimeout(t *v1alpha1.Task) time.Duration {
	if t.Spec.KillTimeout == nil {
		return wire.DefaultKillTimeout
	}
	return t.Spec.KillTimeout.Value()
}
