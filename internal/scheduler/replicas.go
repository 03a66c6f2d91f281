package scheduler

import (
	"cmp"
	"slices"
	"time"

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

// evictionBySibling returns why a task must leave its robot for a task of the same replica, or "". That
// one waits for another robot, and would wait forever, because the tasks of a replica share a robot.
// Tasks of a split replica do not evict each other.
func (c *clusterState) evictionBySibling(k key) string {
	e := c.tasks.byKey[k]
	if e == nil || e.robot == "" {
		return ""
	}
	for name, sibling := range c.tasks.byReplica[e.replica] {
		if sibling.robot != "" {
			continue
		}
		if why := c.exclusionFrom(sibling, e.robot); why != "" && !c.tasks.isSplit(e.replica, c.tasks.robotsOf(e.replica)) {
			return "task " + name.Name + " of the same replica " + why + " and must run on another one"
		}
	}
	return ""
}

// exclusionFrom returns why a task must run on another robot than this one, or "". A robot that is
// blocked for the group excludes only tasks that another robot could run: the others fail, and what
// runs there may continue.
func (c *clusterState) exclusionFrom(e *taskEntry, robot string) string {
	switch {
	case slices.Contains(e.failedRobots, robot):
		return "failed on this robot"
	case e.requiredRobot != "", e.lostRobot == robot: // its lost attempt may continue there
		return ""
	case slices.Contains(c.blockedRobots(e.replica.Group), robot) && c.canAnyRobotRun(e, e.failedRobots, ""):
		return "cannot start on this robot, which is blocked for the task group,"
	}
	return ""
}

// evictSiblings evicts the siblings of a task from robots on which it cannot start. Those that were
// not dispatched yet lose their reservation.
func (c *clusterState) evictSiblings(e *taskEntry) {
	for k, sibling := range c.tasks.byReplica[e.replica] {
		switch {
		case sibling.robot == "" || c.exclusionFrom(e, sibling.robot) == "":
		case sibling.dispatched:
			c.toNotify = append(c.toNotify, k)
		case sibling != e && c.tasks.unconfirmed[k] == nil:
			c.cancelReservation(sibling)
		}
	}
}

// failedRobotsOfSiblings returns the robots that a task cannot use because another task of
// its replica has failed there. Otherwise tasks that share a robot would wait forever for one on
// which none of them has failed.
func (c *clusterState) failedRobotsOfSiblings(e *taskEntry) (robots []string) {
	if c.tasks.isSplit(e.replica, c.tasks.robotsOf(e.replica)) {
		return nil
	}
	for name, sibling := range c.tasks.byReplica[e.replica] {
		if name != e.key {
			robots = append(robots, sibling.failedRobots...)
		}
	}
	for _, ended := range c.initTasks.byReplica[e.replica] {
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
