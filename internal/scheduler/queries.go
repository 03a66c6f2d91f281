package scheduler

import (
	"maps"
	"slices"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/placement"
	"k8s4r.io/k8s4r/internal/core/placement/apiconv"
	"k8s4r.io/k8s4r/internal/core/taskstate"
)

// demandOfEntry returns what a task needs by itself.
func (c *clusterState) demandOfEntry(e *taskEntry) placement.Demand {
	d := placement.Demand{Tasks: []placement.Task{e.Task}, Group: e.replica.Group.Name, Since: e.createdAt}
	newDemandBuilder(c).termsOfEntry(e).applyTo(&d)
	return d
}

// betterRobot returns the robot that placement prefers of two that both run the Task, or "". It
// ignores the room that the Task itself holds on them. What the robots offer is read from the
// objects, because the state may not contain yet that one of them has reconnected.
func (c *clusterState) betterRobot(t *v1alpha1.Task, a, b *v1alpha1.Robot) string {
	d := c.demandOfEntry(newTaskEntry(t))
	s := placement.Snapshot{Demands: []placement.Demand{d}}
	for _, object := range []*v1alpha1.Robot{a, b} {
		if object == nil {
			continue
		}
		robot := apiconv.RobotFrom(object)
		if r := c.robots.byID[object.Name]; r != nil {
			reserved := r.forNamespace(t.Namespace)
			robot.Held, robot.Groups = reserved.Held.Minus(d.Needs()), reserved.Groups
		}
		if object.Name == t.CurrentRobot() { // a lost attempt is not counted for its group
			groups := map[string]int{}
			maps.Copy(groups, robot.Groups)
			groups[d.Group]--
			robot.Groups = groups
		}
		s.Robots = append(s.Robots, robot)
	}
	for _, binding := range placement.Decide(s).Bind {
		return binding.Robot
	}
	return ""
}

// hasCapableRobot reports whether any robot could ever run the Task, except those on which it
// or another task of its replica has failed.
func (c *clusterState) hasCapableRobot(t *v1alpha1.Task, failed []string) bool {
	required := ""
	if !taskstate.CanChangeRobot(t) {
		required = t.Spec.TargetRobot
	}
	return c.canAnyRobotRun(newTaskEntry(t), failed, required)
}

// canAnyRobotRun reports whether any robot could ever run a task, except those on which it or another
// task of its replica has failed. If required is not empty, only that robot counts.
func (c *clusterState) canAnyRobotRun(e *taskEntry, failed []string, required string) bool {
	d := c.demandOfEntry(e)
	d.Failed, d.Robot = slices.Concat(failed, c.failedRobotsOfSiblings(e)), required
	return placement.CanAnyRun(&d, c.robots.usableBy(e.key.Namespace))
}

// preemption returns which task preempts another one, or "".
func (c *clusterState) preemption(k key) string {
	if e := c.tasks.byKey[k]; e != nil && e.victimOf != "" {
		return "preempted by task " + e.victimOf + ", which has a higher priority"
	}
	return ""
}
