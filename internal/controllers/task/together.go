package task

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// seatsOf are the robots on which tasks of a replica sit, those with the most of
// them first.
func (l *ledger) seatsOf(r replica) (robots []string) {
	count := map[string]int{}
	for _, e := range l.replicas[r] {
		if e.seat == "" {
			continue
		}
		if count[e.seat]++; count[e.seat] == 1 {
			robots = append(robots, e.seat)
		}
	}
	slices.SortFunc(robots, func(a, b string) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(a, b))
	})
	return robots
}

// gatherTime is how long the tasks of a new replica wait for the watch to show the
// others.
const gatherTime = 5 * time.Second

// gathering tells whether a replica waits for more of its tasks to be seen. The first
// of them, placed by itself, would take a robot that another cannot run on, and that
// one would wait for as long as the first runs.
func (l *ledger) gathering(r replica) bool {
	delete(l.gathers, r)
	if len(l.replicas[r])+len(l.ended[r]) >= l.groups[r.group].size {
		return false
	}
	var created time.Time // the last of them
	for _, e := range l.replicas[r] {
		if e.seat != "" || e.last != "" {
			return false
		}
		if created.Before(e.since) {
			created = e.since
		}
	}
	until := created.Add(gatherTime)
	if !l.now().Before(until) {
		return false
	}
	l.gathers[r] = until
	return true
}

// apart tells whether the tasks of a replica, some of which are near, share no robot,
// because each has decided for itself which of its runs survives the loss of one.
// Who waits for room beside a sibling that it did not run beside before may wait
// for ever, and for nothing.
func (l *ledger) apart(r replica, near []string) bool {
	if len(near) != 1 {
		return len(near) > 1
	}
	var bound time.Time // since when somebody is there
	for _, e := range l.replicas[r] {
		if e.onRobot && !e.turned.IsZero() && (bound.IsZero() || e.turned.Before(bound)) {
			bound = e.turned
		}
	}
	for _, e := range l.replicas[r] {
		elsewhere := e.seat == "" && e.last != "" && e.last != near[0]
		if elsewhere && !bound.IsZero() && bound.Before(e.turned) {
			return true
		}
	}
	return false
}

// lastOn is the robot of a Task's present attempt, and when it was bound there or,
// if it waits, came back. Zero: nobody knows.
func lastOn(t *v1alpha1.Task) (robot string, turned time.Time) {
	if a := t.Status.Entry(t.Status.Attempt); a != nil {
		robot = a.Robot
	}
	if c := meta.FindStatusCondition(t.Status.Conditions, v1alpha1.ConditionPlaced); c != nil {
		turned = c.LastTransitionTime.Time
	}
	return robot, turned
}

// forsake tells the siblings of a task which may not run on their robot any more.
// Those that have yet to start there wait with it for another one.
func (l *ledger) forsake(e *entry) {
	for k, sibling := range l.replicas[e.replica] {
		switch {
		case sibling.seat == "" || !slices.Contains(e.failed, sibling.seat):
		case sibling.onRobot:
			l.late = append(l.late, k)
		case sibling != e && l.unseen[k] == nil:
			l.unseat(sibling)
		}
	}
}

// failedOthers are the robots that a Task cannot go to because another of its replica
// has failed there: those that share a robot would wait for one for ever that none of
// them has failed on.
func (l *ledger) failedOthers(t *v1alpha1.Task) (robots []string) {
	r, k := replicaOf(t), key{Namespace: t.Namespace, Name: t.Name}
	if l.apart(r, l.seatsOf(r)) {
		return nil
	}
	for name, sibling := range l.replicas[r] {
		if name != k {
			robots = append(robots, sibling.failed...)
		}
	}
	for _, p := range l.ended[r] {
		for _, robot := range p.failed {
			if robot != p.robot { // there it need not run again
				robots = append(robots, robot)
			}
		}
	}
	return robots
}

// forsakenBy is the task of the same replica that has failed on this one's robot
// and waits for another: it would wait for ever, because the tasks of a replica
// share a robot. Empty: none, or they share none.
func (l *ledger) forsakenBy(k key) string {
	e := l.entries[k]
	if e == nil || e.seat == "" {
		return ""
	}
	for name, sibling := range l.replicas[e.replica] {
		if sibling.seat == "" && slices.Contains(sibling.failed, e.seat) && !l.apart(e.replica, l.seatsOf(e.replica)) {
			return name.Name
		}
	}
	return ""
}
