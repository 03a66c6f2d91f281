package scheduler

import (
	"cmp"
	"slices"
	"time"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/taskstate"
)

// robotsOf returns the robots on which tasks of a replica have a reservation, those with
// the most of them first.
func (x *taskIndex) robotsOf(r taskstate.Replica) (robots []string) {
	count := map[string]int{}
	for _, e := range x.byReplica[r] {
		if e.robot == "" {
			continue
		}
		if count[e.robot]++; count[e.robot] == 1 {
			robots = append(robots, e.robot)
		}
	}
	slices.SortFunc(robots, func(a, b string) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(a, b))
	})
	return robots
}

// isSplit reports whether the tasks of a replica, some of which are on these robots, do not share
// a robot. That happens if a robot was lost and only some of its attempts were restored. A task
// that had to run beside a sibling on another robot could wait forever.
func (x *taskIndex) isSplit(r taskstate.Replica, robots []string) bool {
	if len(robots) != 1 {
		return len(robots) > 1
	}
	var firstPlaced time.Time // when the first of its tasks came to the robot
	for _, e := range x.byReplica[r] {
		if e.dispatched && !e.placedAt.IsZero() && (firstPlaced.IsZero() || e.placedAt.Before(firstPlaced)) {
			firstPlaced = e.placedAt
		}
	}
	for _, e := range x.byReplica[r] {
		wasElsewhere := e.robot == "" && e.lastRobot != "" && e.lastRobot != robots[0]
		if wasElsewhere && !firstPlaced.IsZero() && firstPlaced.Before(e.placedAt) {
			return true
		}
	}
	return false
}

// pendingRobot returns the robot on which tasks of a replica have a reservation and have yet
// to start, or "".
func (x *taskIndex) pendingRobot(r taskstate.Replica) (robot string) {
	for _, e := range x.byReplica[r] {
		if e.robot != "" && !e.dispatched && (robot == "" || e.robot < robot) {
			robot = e.robot
		}
	}
	return robot
}

// evictedBy returns the task of the same replica that has failed on this one's robot and waits
// for another one, or "". It would wait forever, because the tasks of a replica share a robot.
// Tasks of a split replica do not evict each other.
func (x *taskIndex) evictedBy(k key) string {
	e := x.byKey[k]
	if e == nil || e.robot == "" {
		return ""
	}
	for name, sibling := range x.byReplica[e.replica] {
		if sibling.robot == "" && slices.Contains(sibling.failedRobots, e.robot) && !x.isSplit(e.replica, x.robotsOf(e.replica)) {
			return name.Name
		}
	}
	return ""
}

// evictSiblings evicts the siblings of a task from robots on which it has failed. Those that were
// not dispatched yet lose their reservation.
func (c *clusterState) evictSiblings(e *taskEntry) {
	for k, sibling := range c.tasks.byReplica[e.replica] {
		switch {
		case sibling.robot == "" || !slices.Contains(e.failedRobots, sibling.robot):
		case sibling.dispatched:
			c.toNotify = append(c.toNotify, k)
		case sibling != e && c.tasks.unconfirmed[k] == nil:
			c.cancelReservation(sibling)
		}
	}
}

// failedRobotsOfSiblings returns the robots that a Task cannot use because another task of
// its replica has failed there. Otherwise tasks that share a robot would wait forever for one on
// which none of them has failed.
func (c *clusterState) failedRobotsOfSiblings(t *v1alpha1.Task) (robots []string) {
	r, k := taskstate.ReplicaOf(t), keyOf(t)
	if c.tasks.isSplit(r, c.tasks.robotsOf(r)) {
		return nil
	}
	for name, sibling := range c.tasks.byReplica[r] {
		if name != k {
			robots = append(robots, sibling.failedRobots...)
		}
	}
	for _, ended := range c.initTasks.byReplica[r] {
		for _, robot := range ended.failedRobots {
			if robot != ended.robot { // it does not have to run again there
				robots = append(robots, robot)
			}
		}
	}
	return robots
}

// incompleteTime bounds how long the Tasks of a new replica wait for the others to be observed.
const incompleteTime = 5 * time.Second

// awaitsMoreTasks reports whether a new replica waits for more of its Tasks to be observed.
// If the first of them was placed alone, it could get a robot on which another one cannot run,
// and that one would wait until the first has ended.
func (c *clusterState) awaitsMoreTasks(r taskstate.Replica) bool {
	delete(c.incomplete, r)
	if len(c.tasks.byReplica[r])+len(c.initTasks.byReplica[r]) >= c.owners.groups[r.Group].size {
		return false
	}
	var lastCreated time.Time
	for _, e := range c.tasks.byReplica[r] {
		if e.robot != "" || e.lastRobot != "" {
			return false
		}
		if lastCreated.Before(e.createdAt) {
			lastCreated = e.createdAt
		}
	}
	until := lastCreated.Add(incompleteTime)
	if !c.now().Before(until) {
		return false
	}
	c.incomplete[r] = until
	return true
}
