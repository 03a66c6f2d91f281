package taskgroup

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/placement"
	"k8s4r.io/k8s4r/internal/core/placement/apiconv"
)

// RobotMatch describes a robot that matches a system or sysbatch job.
type RobotMatch struct {
	// Schedulable is true if the robot may get a new replica.
	Schedulable bool
	// Online is true if the robot is connected and can start tasks.
	Online bool
	// Labels are those of the robot, for the waves of a Rollout. Nil if the Job does not have that strategy.
	Labels map[string]string
	// notBase and notTarget are true if the robot matches the rules of the Job, but not those of the base or
	// of the target definition.
	notBase, notTarget bool
}

// suits reports whether the robot matches the base or the target definition.
func (r RobotMatch) suits(target bool) bool {
	if target {
		return !r.notTarget
	}
	return !r.notBase
}

// fleetCache holds the robots that match a group of a system or sysbatch job. Without it, a group on a
// thousand robots would list them for each event of one of its Tasks.
type fleetCache struct {
	version fleetVersion
	matches map[string]RobotMatch
}

// fleetVersion identifies the inputs from which a fleetCache was computed.
type fleetVersion struct {
	robots int       // number of observed changes of robots
	group  int64     // generation
	job    int64     // generation
	target types.UID // of the ControllerRevision; empty: none
}

// findMatchingRobots returns the robots that match the group of a system or sysbatch job, by name.
// It returns nil for other jobs.
func (c *Controller) findMatchingRobots(ctx context.Context, g *v1alpha1.TaskGroup, j *v1alpha1.Job, waves *Waves) (map[string]RobotMatch, error) {
	if j == nil || !v1alpha1.RunsOnEveryRobot(j.Spec.Type) {
		return nil, nil
	}
	// Read the version before the list, so that later changes cause another list.
	now := fleetVersion{robots: c.robotChanges.Count(g.Namespace), group: g.Generation, job: j.Generation}
	if waves != nil {
		now.target = waves.targetUID
	}
	var last fleetCache
	c.counts.withGroup(g.UID, func(m *groupTasks) { last = m.fleet })
	if last.matches != nil && last.version == now {
		return last.matches, nil
	}
	var robots v1alpha1.RobotList
	if err := c.List(ctx, &robots, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list robots: %w", err)
	}
	var fits map[string]RobotMatch
	if offers := convertRobots(g.Namespace, robots.Items); waves != nil {
		fits = waves.matchRobots(g, j, offers)
	} else {
		fits = matchRobots(g, j, offers)
	}
	c.counts.withGroup(g.UID, func(m *groupTasks) { m.fleet = fleetCache{now, fits} })
	return fits, nil
}

// robotOffer is a robot that a namespace may use, with what it offers. The conversion costs more than all
// comparisons with a definition, and is needed for several.
type robotOffer struct {
	object *v1alpha1.Robot
	offer  placement.Robot
}

// convertRobots returns the robots that the namespace may use.
func convertRobots(namespace string, robots []v1alpha1.Robot) []robotOffer {
	out := make([]robotOffer, 0, len(robots))
	for i := range robots {
		if robots[i].ServesNamespace(namespace) {
			out = append(out, robotOffer{&robots[i], apiconv.RobotFrom(&robots[i])})
		}
	}
	return out
}

// matchRobots returns the robots that should have a replica, including robots that are
// shared with the group's namespace and robots that are offline.
func matchRobots(g *v1alpha1.TaskGroup, j *v1alpha1.Job, robots []robotOffer) map[string]RobotMatch {
	matches := apiconv.NewSystemMatcher(g.Namespace, j, &g.Spec.TaskGroupTemplate)
	fits := map[string]RobotMatch{}
	for i := range robots {
		if r := &robots[i].offer; matches(robots[i].object, r) {
			fits[r.Name] = RobotMatch{Schedulable: !r.Unschedulable, Online: r.Phase == lifecycle.RobotOnline && r.Impairment == ""}
		}
	}
	return fits
}

// matchRobots returns the robots that match the rules of the Job, and which of the two definitions they
// match: Tasks of either may be there.
func (w *Waves) matchRobots(g *v1alpha1.TaskGroup, j *v1alpha1.Job, robots []robotOffer) map[string]RobotMatch {
	undefined := *g
	undefined.Spec.TaskGroupTemplate = v1alpha1.TaskGroupTemplate{}
	fits, base := matchRobots(&undefined, j, robots), matchRobots(g, j, robots)
	target := base
	if w.Target != nil {
		other := *g
		other.Spec.TaskGroupTemplate = *w.Target
		target = matchRobots(&other, j, robots)
	}
	for i := range robots {
		r := &robots[i].offer
		fit, matches := fits[r.Name]
		if !matches {
			continue
		}
		_, inBase := base[r.Name]
		_, inTarget := target[r.Name]
		fit.Labels, fit.notBase, fit.notTarget = r.Labels, !inBase, !inTarget
		fits[r.Name] = fit
	}
	return fits
}

// enqueueFleetGroups enqueues the groups of system and sysbatch jobs of a namespace, because a robot has changed.
func (c *Controller) enqueueFleetGroups(ctx context.Context, namespace string, q queue) {
	for _, jobType := range []string{v1alpha1.JobTypeSystem, v1alpha1.JobTypeSysbatch} {
		c.enqueueGroups(ctx, namespace, jobType, q)
	}
}

// enqueueGroups enqueues the groups of the jobs of this type.
func (c *Controller) enqueueGroups(ctx context.Context, namespace, jobType string, q queue) {
	var jobs v1alpha1.JobList
	err := c.List(ctx, &jobs, client.InNamespace(namespace), client.MatchingFields{indexType: jobType}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return // the cache has stopped, and with it the controller
	}
	for i := range jobs.Items {
		for _, r := range c.groupsOfJob(ctx, &jobs.Items[i]) {
			q.Add(r)
		}
	}
}
