package rollout

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/rollout"
)

// indexOrders is the field by which the cache finds the robots that fetch for a Rollout.
const indexOrders = "status.prefetchOrder.rollout"

func indexOrder(o client.Object) []string {
	if order := o.(*v1alpha1.Robot).Status.PrefetchOrder; order != nil {
		return []string{order.Namespace + "/" + order.Rollout}
	}
	return nil
}

// prefetch is what robots fetch in advance for a Rollout.
type prefetch struct {
	plan rollout.PrefetchPlan
	// robots are the objects of the plan, by name. They must not be changed.
	robots map[string]*v1alpha1.Robot
}

// planPrefetch plans what robots fetch in advance.
func (c *Controller) planPrefetch(ctx context.Context, now time.Time, w *Input) (prefetch, error) {
	r := w.Rollout
	if !rollout.IsPrefetching(r) || w.TargetName == "" {
		return c.planNoPrefetch(ctx, client.ObjectKeyFromObject(r))
	}
	var all v1alpha1.RobotList
	if err := c.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return prefetch{}, fmt.Errorf("list robots: %w", err)
	}
	p := prefetch{robots: map[string]*v1alpha1.Robot{}}
	groups, has := w.missingGroups(), map[string]bool{}
	var robots []rollout.PrefetchRobot
	for i := range all.Items {
		robot := &all.Items[i]
		missing, isUnit := groups[robot.Name]
		isUnit = isUnit && robot.ServesNamespace(r.Namespace)
		if has[robot.Name] || !isUnit && !isOrderOf(robot, r) {
			continue
		}
		isForeign, err := c.hasForeignOrder(ctx, robot, r)
		if err != nil {
			return prefetch{}, err
		}
		has[robot.Name], p.robots[robot.Name] = true, robot
		robots = append(robots, newPrefetchRobot(robot, r, missing, isForeign))
	}
	c.memory.Update(client.ObjectKeyFromObject(r), r.UID, func(m *memory) { m.orders = observeOrders(now, r, m.orders, robots) })
	p.plan = rollout.PlanPrefetch(now, r, w.TargetName, robots)
	return p, nil
}

// orderSighting is what this manager has seen of the orders of a robot.
type orderSighting struct {
	attempt   int32     // of the order that it has not reported about
	orderedAt time.Time // as in rollout.PrefetchRobot, like silentAt
	silentAt  time.Time
}

// observeOrders sets since when robots have not reported about their orders, and returns that for the next time.
func observeOrders(now time.Time, r *v1alpha1.Rollout, last map[string]orderSighting, robots []rollout.PrefetchRobot) map[string]orderSighting {
	next := make(map[string]orderSighting, len(robots))
	for i := range robots {
		robot := &robots[i]
		is := last[robot.Name]
		switch {
		case !robot.AwaitsReport(r):
			is.orderedAt = time.Time{}
		case is.orderedAt.IsZero() || is.attempt != robot.Order.Attempt:
			is.orderedAt, is.attempt = now, robot.Order.Attempt
		case now.Sub(is.orderedAt) >= rollout.PrefetchReportTime:
			is.silentAt = now
		}
		robot.OrderedAt, robot.SilentAt = is.orderedAt, is.silentAt
		next[robot.Name] = is
	}
	return next
}

// planNoPrefetch removes the orders of a Rollout for which robots do not fetch, or which was deleted.
func (c *Controller) planNoPrefetch(ctx context.Context, k types.NamespacedName) (p prefetch, err error) {
	var all v1alpha1.RobotList
	if err := c.List(ctx, &all, client.MatchingFields{indexOrders: k.String()}, client.UnsafeDisableDeepCopy); err != nil {
		return p, fmt.Errorf("list robots that fetch in advance: %w", err)
	}
	p.robots, p.plan.Orders = map[string]*v1alpha1.Robot{}, map[string]*v1alpha1.RobotPrefetchOrder{}
	for i := range all.Items {
		robot := &all.Items[i]
		p.robots[robot.Name], p.plan.Orders[robot.Name] = robot, nil
	}
	return p, nil
}

func isOrderOf(robot *v1alpha1.Robot, r *v1alpha1.Rollout) bool {
	return robot.Status.PrefetchOrder != nil && robot.Status.PrefetchOrder.ID == string(r.UID)
}

// hasForeignOrder reports whether the robot fetches for another Rollout, which still needs that.
func (c *Controller) hasForeignOrder(ctx context.Context, robot *v1alpha1.Robot, r *v1alpha1.Rollout) (bool, error) {
	o := robot.Status.PrefetchOrder
	if o == nil || o.ID == string(r.UID) {
		return false, nil
	}
	var other v1alpha1.Rollout
	err := c.Get(ctx, types.NamespacedName{Namespace: o.Namespace, Name: o.Rollout}, &other, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("get rollout %s: %w", o.Rollout, err)
	}
	return string(other.UID) == o.ID && rollout.IsPrefetching(&other), nil
}

func newPrefetchRobot(robot *v1alpha1.Robot, r *v1alpha1.Rollout, missing []string, isForeign bool) rollout.PrefetchRobot {
	s := &robot.Status
	out := rollout.PrefetchRobot{
		Name: robot.Name, Groups: missing, HasForeignOrder: isForeign, Order: s.PrefetchOrder,
		IsOnline: lifecycle.ParseRobotPhase(s.Phase) == lifecycle.RobotOnline, CanPrefetch: s.Agent != nil && s.Agent.Prefetches,
	}
	for i := range s.Prefetch {
		if s.Prefetch[i].ID == string(r.UID) {
			out.Report = &s.Prefetch[i]
		}
	}
	return out
}

// missingGroups returns, by robot, the groups of which a unit on it should have Tasks of the new revision and
// does not have all. Robots with no such group are in the map, too.
func (w *Input) missingGroups() map[string][]string {
	out := map[string][]string{}
	for i := range w.Units {
		u := &w.Units[i]
		if u.Robot == "" {
			continue
		}
		missing := out[u.Robot]
		for _, group := range u.Groups {
			if !u.hasGroup(group, w.Target[group]) && !slices.Contains(missing, group) {
				missing = append(missing, group)
			}
		}
		slices.Sort(missing)
		out[u.Robot] = missing
	}
	return out
}

// hasGroup reports whether the unit has all Tasks of a group, with these revisions by task.
func (u *Unit) hasGroup(group string, revisions map[string]string) bool {
	has := map[string]bool{}
	for i := range u.Tasks {
		if t := &u.Tasks[i]; t.Group == group && t.Revision == revisions[t.Task] {
			has[t.Task] = true
		}
	}
	return len(has) == len(revisions)
}

// applyPrefetch writes the orders. If a robot has changed meanwhile, it returns when to plan again, because not every
// change causes a plan. Otherwise it returns zero.
func (c *Controller) applyPrefetch(ctx context.Context, now time.Time, p prefetch) (again time.Time, err error) {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(p.plan.Orders)) {
		robot := p.robots[name].DeepCopy()
		robot.Status.PrefetchOrder = p.plan.Orders[name]
		switch err := c.Status().Update(ctx, robot); { // refused if the robot has changed
		case apierrors.IsConflict(err):
			again = now.Add(c.Tick)
		case err != nil && !apierrors.IsNotFound(err):
			errs = append(errs, fmt.Errorf("write the prefetch order of robot %s: %w", name, err))
		}
	}
	return again, errors.Join(errs...)
}

// dropOrders removes the orders of a Rollout if it was deleted. It may exist, with a cache that is stale. It returns
// the same as applyPrefetch.
func (c *Controller) dropOrders(ctx context.Context, now time.Time, k types.NamespacedName) (again time.Time, err error) {
	var r v1alpha1.Rollout
	if err := c.Get(ctx, k, &r, client.UnsafeDisableDeepCopy); !apierrors.IsNotFound(err) {
		return again, err
	}
	p, err := c.planNoPrefetch(ctx, k)
	if err != nil {
		return again, err
	}
	return c.applyPrefetch(ctx, now, p)
}

// prefetchHandler enqueues the Rollouts that may use a robot when it has reported about an order, or lost
// one.
func (c *Controller) prefetchHandler() handler.EventHandler {
	return handler.Funcs{UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
		before, after := &e.ObjectOld.(*v1alpha1.Robot).Status, &e.ObjectNew.(*v1alpha1.Robot).Status
		if apiequality.Semantic.DeepEqual(before.Prefetch, after.Prefetch) && apiequality.Semantic.DeepEqual(before.PrefetchOrder, after.PrefetchOrder) {
			return
		}
		for _, namespace := range e.ObjectNew.(*v1alpha1.Robot).UserNamespaces() {
			c.forEach(ctx, namespace, nil, func(r *v1alpha1.Rollout) {
				if rollout.IsPrefetching(r) {
					q.AddAfter(requestFor(r), c.Tick)
				}
			})
		}
	}}
}
