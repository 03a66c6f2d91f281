package taskgroup

import (
	"context"
	"fmt"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/window"
)

// usableRobots caches the robots that each namespace may use, until one of them changes. All groups of a namespace
// share them. The zero value is empty.
type usableRobots struct {
	mu          sync.Mutex // guards byNamespace
	byNamespace map[string]usableRobotsVersion
}

// usableRobotsVersion are the robots after so many observed changes.
type usableRobotsVersion struct {
	changes int
	robots  map[string]window.Robot
}

// find returns the robots of a version, or nil.
func (u *usableRobots) find(namespace string, changes int) map[string]window.Robot {
	u.mu.Lock()
	defer u.mu.Unlock()
	if last := u.byNamespace[namespace]; last.changes == changes {
		return last.robots
	}
	return nil
}

func (u *usableRobots) store(namespace string, v usableRobotsVersion) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.byNamespace == nil {
		u.byNamespace = map[string]usableRobotsVersion{}
	}
	u.byNamespace[namespace] = v
}

// observeInterruptions reads the maintenance windows and the holds that may matter for a group. It returns nil if
// no running Task has an old definition.
func (c *Controller) observeInterruptions(ctx context.Context, w *Input) (*Interruptions, error) {
	if !w.needsInterruptions() {
		return nil, nil
	}
	calendar, err := c.windows.Read(ctx, c)
	if err != nil {
		return nil, err
	}
	namespace := w.Group.Namespace
	// Read the version before the list, so that later changes cause another list.
	changes := c.robotChanges.Count(namespace)
	if robots := c.usable.find(namespace, changes); robots != nil {
		return &Interruptions{calendar, robots}, nil
	}
	var list v1alpha1.RobotList
	if err := c.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list robots: %w", err)
	}
	robots := map[string]window.Robot{}
	for i := range list.Items {
		if r := &list.Items[i]; r.ServesNamespace(namespace) {
			robots[r.Name] = window.RobotFrom(r)
		}
	}
	c.usable.store(namespace, usableRobotsVersion{changes, robots})
	return &Interruptions{calendar, robots}, nil
}

// enqueueChangedRobot enqueues the groups of a namespace that a change of a robot may concern.
func (c *Controller) enqueueChangedRobot(ctx context.Context, namespace string, q queue) {
	c.enqueueFleetGroups(ctx, namespace, q)
	for _, r := range c.rollingOut(ctx, client.InNamespace(namespace)) {
		q.Add(r)
	}
}

// groupsOfWindow returns requests for all groups that are rolling out: a robot may be shared with any namespace.
func (c *Controller) groupsOfWindow(ctx context.Context, _ client.Object) []reconcile.Request {
	return c.rollingOut(ctx)
}

// rollingOut returns requests for the groups whose last status shows a rollout in progress.
func (c *Controller) rollingOut(ctx context.Context, opts ...client.ListOption) (out []reconcile.Request) {
	var groups v1alpha1.TaskGroupList
	if err := c.List(ctx, &groups, append(opts, client.UnsafeDisableDeepCopy)...); err != nil {
		return nil // the cache has stopped, and with it the controller
	}
	for i := range groups.Items {
		if isRollingOut(&groups.Items[i]) {
			out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&groups.Items[i])})
		}
	}
	return out
}

// onSpecChange drops updates of the status.
func onSpecChange() builder.Predicates {
	return builder.WithPredicates(predicate.GenerationChangedPredicate{})
}
