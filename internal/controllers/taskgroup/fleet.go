package taskgroup

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/demand"
	"k8s4r.io/k8s4r/internal/lifecycle"
	"k8s4r.io/k8s4r/internal/placement"
)

// Fit is a robot that matches a system job.
type Fit struct {
	// Takes tells that it may be given a replica that it does not have.
	Takes bool
	// Online tells that it is in contact.
	Online bool
}

// fleet is what was last found of the robots that match a group, and what it was
// found of. A group of a thousand robots must not look at all of them for every
// word about one of its tasks.
type fleet struct {
	about view
	fits  map[string]Fit
}

// view is all that a fleet depends on. The zero view is never looked at.
type view struct {
	robots int // changes of the robots that were seen
	group  int64
	job    int64
}

// robotNews counts the changes of robots that matter, by the namespace that may use them.
type robotNews struct {
	mu    sync.Mutex
	count map[string]int
}

func newRobotNews() *robotNews { return &robotNews{count: map[string]int{}} }

func (n *robotNews) note(namespace string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.count[namespace]++
}

func (n *robotNews) of(namespace string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.count[namespace]
}

// fleet are the robots that match the group of a system job, by name. Nil: the
// job is none.
func (c *Controller) fleet(ctx context.Context, g *v1alpha1.TaskGroup, j *v1alpha1.Job) (map[string]Fit, error) {
	if j == nil || j.Spec.Type != v1alpha1.JobTypeSystem {
		return nil, nil
	}
	// Counted before the list, so that what changes meanwhile is looked at again.
	now := view{robots: c.robots.of(g.Namespace), group: g.Generation, job: j.Generation}
	var last fleet
	c.tally.with(g.UID, func(m *members) { last = m.fleet })
	if last.fits != nil && last.about == now {
		return last.fits, nil
	}
	var robots v1alpha1.RobotList
	if err := c.List(ctx, &robots, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list robots: %w", err)
	}
	fits := matching(g, j, robots.Items)
	c.tally.with(g.UID, func(m *members) { m.fleet = fleet{now, fits} })
	return fits, nil
}

// matching are the robots that are to have a replica, those that are shared with the
// group's namespace too. One that is out of contact is; it will be back.
func matching(g *v1alpha1.TaskGroup, j *v1alpha1.Job, robots []v1alpha1.Robot) map[string]Fit {
	var tasks []placement.Task
	for _, def := range g.Spec.Definitions() {
		tasks = append(tasks, demand.Task("", def, nil, nil))
	}
	matches := placement.Matcher(demand.Rules(j, g.Spec.Constraints), tasks)
	fits := map[string]Fit{}
	for i := range robots {
		if !robots[i].Serves(g.Namespace) {
			continue
		}
		r := demand.Robot(&robots[i])
		if robots[i].DeletionTimestamp == nil && r.Phase != lifecycle.RobotPending && matches(&r) {
			fits[r.Name] = Fit{Takes: !r.Unschedulable, Online: r.Phase == lifecycle.RobotOnline}
		}
	}
	return fits
}

// robotHandler wakes the groups of system jobs when a robot changes in a way that
// matters to them. Heartbeats do not.
func (c *Controller) robotHandler() handler.EventHandler {
	news := func(ctx context.Context, namespace string, q queue) {
		c.robots.note(namespace)
		var jobs v1alpha1.JobList
		err := c.List(ctx, &jobs, client.InNamespace(namespace), client.MatchingFields{indexType: v1alpha1.JobTypeSystem}, client.UnsafeDisableDeepCopy)
		if err != nil {
			return // the cache has stopped, and with it the controller
		}
		for i := range jobs.Items {
			for _, r := range c.ofJob(ctx, &jobs.Items[i]) {
				q.Add(r)
			}
		}
	}
	changed := func(ctx context.Context, users []string, q queue) {
		for _, namespace := range users {
			news(ctx, namespace, q)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) {
			changed(ctx, e.Object.(*v1alpha1.Robot).Users(), q)
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
			changed(ctx, e.Object.(*v1alpha1.Robot).Users(), q)
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			before, after := e.ObjectOld.(*v1alpha1.Robot), e.ObjectNew.(*v1alpha1.Robot)
			if !sameRobot(before, after) {
				users := slices.Concat(before.Users(), after.Users())
				slices.Sort(users)
				changed(ctx, slices.Compact(users), q)
			}
		},
	}
}

// sameRobot tells whether a system job sees no difference between the two.
func sameRobot(before, after *v1alpha1.Robot) bool {
	return demand.Robot(before).Equal(demand.Robot(after).Offer) && slices.Equal(before.Users(), after.Users()) &&
		(before.DeletionTimestamp == nil) == (after.DeletionTimestamp == nil)
}
