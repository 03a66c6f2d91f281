package rollout

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/rollout"
)

// siblingHandler enqueues the other Rollouts of a Job, or of agents, when one finds its revision, ends or is deleted:
// another one may decide for the Job from then on.
func (c *Controller) siblingHandler() handler.EventHandler {
	enqueue := func(ctx context.Context, o client.Object, q queue) {
		r := o.(*v1alpha1.Rollout)
		c.forEach(ctx, r.Namespace, client.MatchingFields{indexTarget: rollout.TargetKey(r)}, func(other *v1alpha1.Rollout) {
			if other.Name != r.Name {
				q.Add(requestFor(other))
			}
		})
	}
	return handler.Funcs{
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			before, after := e.ObjectOld.(*v1alpha1.Rollout), e.ObjectNew.(*v1alpha1.Rollout)
			if rollout.HasStarted(before) != rollout.HasStarted(after) || before.Status.Revision != after.Status.Revision || isSuperseded(before) != isSuperseded(after) {
				enqueue(ctx, after, q)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { enqueue(ctx, e.Object, q) },
	}
}

func isSuperseded(r *v1alpha1.Rollout) bool { return r.Status.Phase == v1alpha1.RolloutSuperseded }

// jobHandler enqueues the Rollouts of a Job when it changes in more than counts.
func (c *Controller) jobHandler() handler.EventHandler {
	enqueue := func(ctx context.Context, o client.Object, q queue) {
		c.forEach(ctx, o.GetNamespace(), client.MatchingFields{indexTarget: o.GetName()}, func(r *v1alpha1.Rollout) { q.Add(requestFor(r)) })
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { enqueue(ctx, e.Object, q) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { enqueue(ctx, e.Object, q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			before, after := e.ObjectOld.(*v1alpha1.Job), e.ObjectNew.(*v1alpha1.Job)
			if before.Generation != after.Generation || before.Status.State != after.Status.State ||
				before.Status.CurrentRevision != after.Status.CurrentRevision || before.Status.UpdateRevision != after.Status.UpdateRevision {
				enqueue(ctx, after, q)
			}
		},
	}
}

// taskHandler enqueues the Rollouts that count a Task, a tick later: many changes share one count.
func (c *Controller) taskHandler() handler.EventHandler {
	enqueue := func(ctx context.Context, o client.Object, q queue) {
		t := o.(*v1alpha1.Task)
		if !mayHaveRevision(t) {
			return
		}
		c.forEach(ctx, t.Namespace, client.MatchingFields{indexTarget: t.Spec.JobName}, func(r *v1alpha1.Rollout) {
			if countsUnits(r) {
				q.AddAfter(requestFor(r), c.Tick)
			}
		})
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { enqueue(ctx, e.Object, q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) { enqueue(ctx, e.ObjectNew, q) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { enqueue(ctx, e.Object, q) },
	}
}

// enqueueCounting enqueues the Rollouts of a namespace that count units, because a robot has changed.
func (c *Controller) enqueueCounting(ctx context.Context, namespace string, q queue) {
	c.forEach(ctx, namespace, nil, func(r *v1alpha1.Rollout) {
		if countsUnits(r) {
			q.AddAfter(requestFor(r), c.Tick)
		}
	})
}

// windowHandler enqueues the Rollouts of all namespaces that count units: robots are shared between namespaces.
func (c *Controller) windowHandler() handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, _ client.Object) (out []reconcile.Request) {
		c.forEach(ctx, "", nil, func(r *v1alpha1.Rollout) {
			if countsUnits(r) {
				out = append(out, requestFor(r))
			}
		})
		return out
	})
}

// agentHandler enqueues the Rollouts of agents that count a robot, a tick after its agent has reported. Other
// changes of robots are those of enqueueCounting.
func (c *Controller) agentHandler() handler.EventHandler {
	return handler.Funcs{UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
		before, after := e.ObjectOld.(*v1alpha1.Robot), e.ObjectNew.(*v1alpha1.Robot)
		if equality.Semantic.DeepEqual(before.Status.Agent, after.Status.Agent) {
			return
		}
		c.forEach(ctx, after.Namespace, client.MatchingFields{indexTarget: rollout.AgentsKey}, func(r *v1alpha1.Rollout) {
			if countsUnits(r) {
				q.AddAfter(requestFor(r), c.Tick)
			}
		})
	}}
}

// countsUnits reports whether the status of a Rollout has counts that can change.
func countsUnits(r *v1alpha1.Rollout) bool {
	if !rollout.HasStarted(r) {
		return false
	}
	switch r.Status.Phase {
	case "", v1alpha1.RolloutPending, v1alpha1.RolloutReverted, v1alpha1.RolloutSuperseded:
		return false
	case v1alpha1.RolloutComplete:
		return r.Spec.Follow == nil || *r.Spec.Follow
	}
	return true
}

// forEach calls f for the Rollouts of a namespace, or of all if it is empty. f must not change them.
func (c *Controller) forEach(ctx context.Context, namespace string, fields client.MatchingFields, f func(*v1alpha1.Rollout)) {
	opts := []client.ListOption{client.InNamespace(namespace), client.UnsafeDisableDeepCopy}
	if fields != nil {
		opts = append(opts, fields)
	}
	var all v1alpha1.RolloutList
	if err := c.List(ctx, &all, opts...); err != nil {
		return // the cache has stopped, and with it the controller
	}
	for i := range all.Items {
		f(&all.Items[i])
	}
}

func requestFor(r *v1alpha1.Rollout) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKeyFromObject(r)}
}
