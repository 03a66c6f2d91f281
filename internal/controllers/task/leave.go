package task

import (
	"time"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/placement"
	"k8s4r.io/k8s4r/internal/wire"
)

// grace is what a robot gets beyond a task's kill timeout to end a task that
// was deleted while it ran there.
const grace = 5 * time.Second

// leaving is room on a robot of a task that is no object any more and may
// still run: its robot has yet to hear of it, and then to end it. It does not
// go by the Task's name, which the next Task of its replica has at once.
type leaving struct {
	robot key
	room  placement.Room
	until time.Time
}

// leave takes in that a Task is gone. Room that was free at once would be given
// to the next task while the old process runs.
func (l *ledger) leave(k key) {
	e := l.entries[k]
	if e == nil {
		return
	}
	if e.onRobot {
		rest := leaving{
			robot: key{Namespace: k.Namespace, Name: e.seat},
			room:  e.Room(),
			until: l.now().Add(e.killTimeout + grace),
		}
		l.leaving = append(l.leaving, rest)
		r := l.robot(rest.robot)
		r.Held = r.Held.Plus(rest.room)
	}
	l.drop(k)
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
