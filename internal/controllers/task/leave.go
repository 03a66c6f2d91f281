package task

import (
	"time"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/demand"
	"k8s4r.io/k8s4r/internal/lifecycle"
	"k8s4r.io/k8s4r/internal/placement"
	"k8s4r.io/k8s4r/internal/wire"
)

// grace is what a robot gets beyond a task's kill timeout to end a task that
// was deleted while it ran there.
const grace = 5 * time.Second

// leaving is room on a robot of a run that counts no more, or whose task is no
// object any more: its robot has yet to hear of it, and then to end it. It does
// not go by the Task's name, which the next Task of its replica has at once.
type leaving struct {
	robot key
	room  placement.Room
	until time.Time
}

// leave takes in that a Task is gone. Room that was free at once would be given
// to the next task while the old process runs.
func (l *ledger) leave(k key) {
	e := l.entries[k]
	l.exorcise(k, wire.DefaultKillTimeout+grace)
	if e == nil {
		return
	}
	if e.onRobot {
		l.linger(e)
	}
	l.drop(k)
}

// linger keeps the room of a run that is told to end.
func (l *ledger) linger(e *entry) {
	rest := leaving{
		robot: key{Namespace: e.key.Namespace, Name: e.seat},
		room:  e.Room(),
		until: l.now().Add(e.killTimeout + grace),
	}
	l.leaving = append(l.leaving, rest)
	l.take(rest.robot, rest.room)
}

// ghost is an original that may come back with its robot, which holds its room
// as long.
type ghost struct {
	robot key
	room  placement.Room
}

// haunt takes in whether a Task has an original.
func (l *ledger) haunt(k key, t *v1alpha1.Task) {
	var now ghost
	s := &t.Status
	if a := s.Entry(s.Original); a != nil && a.FinishedAt == nil && t.DeletionTimestamp == nil && !lifecycle.TaskState(s.State).Terminal() {
		task := demand.Task(t.Name, &t.Spec.TaskDefinition)
		now = ghost{key{Namespace: t.Namespace, Name: a.Robot}, task.Room()}
	}
	g, had := l.ghosts[k]
	counts := lifecycle.TaskState(s.State).Active() && t.RobotOfAttempt() == g.robot.Name
	ended := s.Entry(s.Original) != nil && s.Entry(s.Original).FinishedAt != nil
	switch {
	case !had || g.robot == now.robot:
	case counts || ended: // its room is the task's own, or nobody's
		l.exorcise(k, 0)
	default:
		l.exorcise(k, killTimeout(t)+grace)
	}
	if _, there := l.ghosts[k]; !there && now.robot.Name != "" {
		l.ghosts[k] = now
		l.take(now.robot, now.room)
	}
}

// exorcise gives back the room of a Task's original, when its robot has had so
// long to end it.
func (l *ledger) exorcise(k key, in time.Duration) {
	g, ok := l.ghosts[k]
	if !ok {
		return
	}
	delete(l.ghosts, k)
	if in > 0 {
		l.leaving = append(l.leaving, leaving{robot: g.robot, room: g.room, until: l.now().Add(in)})
		return
	}
	l.free(g.robot, g.room)
}

// pass takes in what time alone has changed.
func (l *ledger) pass(now time.Time) {
	rest := l.leaving[:0]
	for _, gone := range l.leaving {
		if now.Before(gone.until) {
			rest = append(rest, gone)
			continue
		}
		l.free(gone.robot, gone.room)
	}
	l.leaving = rest
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
	for _, gone := range l.leaving {
		earlier(gone.until)
	}
	for _, e := range l.waiting {
		earlier(e.ready)
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
