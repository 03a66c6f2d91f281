package scheduler

import (
	"slices"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/taskstate"
)

// failureIndex counts, for each TaskGroup, the Tasks that failed on each robot. It blocks a robot with
// the event of the failure, which also releases the room: with the status of the group alone, which
// shows the block a moment later, the room would go to one more Task. It is guarded by Scheduler.mu.
type failureIndex struct {
	byTask map[key]taskFailures   // only of Tasks that have failed somewhere
	counts map[key]map[string]int // by TaskGroup and robot
}

// taskFailures are the robots on which a Task failed.
type taskFailures struct {
	group  key
	robots []string
}

func newFailureIndex() *failureIndex {
	return &failureIndex{byTask: map[key]taskFailures{}, counts: map[key]map[string]int{}}
}

// observeTask stores the failures of a Task, and reports whether they have changed. Those of a Task
// that is being deleted do not count.
func (x *failureIndex) observeTask(t *v1alpha1.Task) (changed bool) {
	k, now := keyOf(t), taskFailures{group: taskstate.ReplicaOf(t).Group, robots: t.Status.FailedRobots}
	if t.DeletionTimestamp != nil || now.group.Name == "" {
		now.robots = nil
	}
	if slices.Equal(x.byTask[k].robots, now.robots) {
		return false
	}
	x.removeTask(k)
	if len(now.robots) > 0 {
		x.byTask[k] = now
		x.addFailures(now, 1)
	}
	return true
}

// removeTask drops the failures of a Task.
func (x *failureIndex) removeTask(k key) {
	x.addFailures(x.byTask[k], -1)
	delete(x.byTask, k)
}

func (x *failureIndex) addFailures(f taskFailures, n int) {
	for _, robot := range f.robots {
		if x.counts[f.group] == nil {
			x.counts[f.group] = map[string]int{}
		}
		if x.counts[f.group][robot] += n; x.counts[f.group][robot] == 0 {
			delete(x.counts[f.group], robot)
		}
	}
	if len(x.counts[f.group]) == 0 {
		delete(x.counts, f.group)
	}
}

// blockedRobots returns the robots that get no more Tasks of a group: those in its status, and those
// on which blocklistAfter of its Tasks have failed.
func (c *clusterState) blockedRobots(group key) []string {
	g := c.owners.groups[group]
	blocked := slices.Clone(g.blocked)
	limit := c.owners.jobs[key{Namespace: group.Namespace, Name: g.job}].blocklistAfter
	for robot, failed := range c.failures.counts[group] {
		if limit > 0 && failed >= limit && !slices.Contains(blocked, robot) {
			blocked = append(blocked, robot)
		}
	}
	slices.Sort(blocked[len(g.blocked):])
	return blocked
}

// leaveBlockedRobots cancels the reservations of a group's Tasks on blocked robots, unless they were
// dispatched. Those are checked again, because a task of their replica may wait for another robot.
func (c *clusterState) leaveBlockedRobots(group key) {
	blocked := c.blockedRobots(group)
	if len(blocked) == 0 {
		return
	}
	for k, e := range c.tasks.byKey {
		switch {
		case e.replica.Group != group || !slices.Contains(blocked, e.robot):
		case e.dispatched:
			c.toNotify = append(c.toNotify, k)
		default:
			c.cancelReservation(e)
		}
	}
}
