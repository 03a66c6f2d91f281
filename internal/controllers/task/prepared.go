package task

import (
	"slices"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/demand"
	"k8s4r.io/k8s4r/internal/lifecycle"
	"k8s4r.io/k8s4r/internal/placement"
)

// prepared is an init task that has ended. It runs again when its replica goes to
// another robot.
type prepared struct {
	replica replica
	robot   string // where it has completed; empty: it was canceled
	failed  []string
	room    placement.Room
}

// seePrepared takes in whether a Task is an init task that has ended.
func (l *ledger) seePrepared(k key, t *v1alpha1.Task) {
	if t.Spec.Holds == nil {
		return
	}
	l.unprepare(k)
	state := lifecycle.TaskState(t.Status.State)
	if !state.Terminal() || state == lifecycle.TaskFailed || t.DeletionTimestamp != nil {
		return
	}
	task := demand.Of(t)
	p := &prepared{replica: replicaOf(t), failed: t.Status.FailedRobots, room: task.Room()}
	if state == lifecycle.TaskCompleted {
		p.robot = t.RobotOfAttempt()
	}
	l.prepared[k] = p
	if l.ended[p.replica] == nil {
		l.ended[p.replica] = map[key]*prepared{}
	}
	l.ended[p.replica][k] = p
}

func (l *ledger) unprepare(k key) {
	p := l.prepared[k]
	if p == nil {
		return
	}
	delete(l.prepared, k)
	if delete(l.ended[p.replica], k); len(l.ended[p.replica]) == 0 {
		delete(l.ended, p.replica)
	}
}

// returnTo lets a replica of which no task has a robot go back where its init tasks
// have completed, or where it has left its data. Any other robot must have room for
// the init tasks too.
func (l *ledger) returnTo(waiting []*entry, d *placement.Demand) {
	if d.Robot != "" {
		return // it must be that one
	}
	ended := l.ended[waiting[0].replica]
	if len(ended) == 0 {
		d.Near = sticksTo(waiting)
		return
	}
	var on []string
	for _, p := range ended {
		d.Spare = d.Spare.Plus(p.room)
		on = append(on, p.robot)
	}
	slices.Sort(on)
	if on = slices.Compact(on); len(on) == 1 && on[0] != "" {
		d.Near = on
	}
}

// sticksTo are the robots that tasks which keep their data were on last, the latest
// first.
func sticksTo(waiting []*entry) (robots []string) {
	var kept []*entry
	for _, e := range waiting {
		if e.sticky && e.last != "" {
			kept = append(kept, e)
		}
	}
	slices.SortStableFunc(kept, func(a, b *entry) int { return b.turned.Compare(a.turned) })
	for _, e := range kept {
		if !slices.Contains(robots, e.last) {
			robots = append(robots, e.last)
		}
	}
	return robots
}

// awaited is the robot on which tasks of a replica have a seat and have yet to start.
// Empty: there is none.
func (l *ledger) awaited(r replica) string {
	var robots []string
	for _, e := range l.replicas[r] {
		if e.seat != "" && !e.onRobot {
			robots = append(robots, e.seat)
		}
	}
	slices.Sort(robots)
	if len(robots) == 0 {
		return ""
	}
	return robots[0]
}
