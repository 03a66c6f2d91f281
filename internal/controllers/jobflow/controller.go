package jobflow

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/expect"
	"k8s4r.io/k8s4r/internal/controllers/jobflow/probe"
	"k8s4r.io/k8s4r/internal/controllers/wake"
)

// Name of the controller.
const Name = "jobflow"

// Controller makes the Jobs of JobFlows and writes their status.
type Controller struct {
	client.Client
	// Live reads what the cache may not show yet, and what it does not keep.
	Live     client.Reader
	Now      func() time.Time
	Recorder events.EventRecorder
	// Concurrency is the number of flows that are worked on at a time.
	Concurrency int
	// MaxRequeue is how often in a row a flow whose work fails is tried again by
	// itself. Then it waits until it, a Job or a template of it changes. Below 0:
	// without limit.
	MaxRequeue int
	// Archives has a flow that has ended stay with its Jobs until its condition Archived
	// is true.
	Archives bool

	expect *expect.Set
	memory memories
	prober *probe.Prober
	// again takes flows that are to be looked at without a change of theirs.
	again chan event.GenericEvent
}

// Reconcile brings one flow a step on.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	result, err := c.sync(ctx, req.NamespacedName)
	if err != nil && c.memory.givesUp(req.NamespacedName, c.MaxRequeue) {
		ctrl.LoggerFrom(ctx).Error(err, "The flow rests until something changes", "tries", c.MaxRequeue)
		c.rests(ctx, req.NamespacedName, err)
		return reconcile.Result{}, nil
	}
	if err == nil {
		c.memory.succeeded(req.NamespacedName)
	}
	return result, err
}

// rests tells that the flow is not tried again by itself (contract §1, Events).
func (c *Controller) rests(ctx context.Context, k types.NamespacedName, why error) {
	var f flowv1.JobFlow
	if err := c.Get(ctx, k, &f); err != nil {
		return // there is nobody to tell
	}
	c.tell(&f, Event{Warning: true, Reason: reasonSync, Note: syncFailed(f.Name, why.Error())})
}

func (c *Controller) sync(ctx context.Context, k types.NamespacedName) (reconcile.Result, error) {
	w, err := c.observe(ctx, k)
	if err != nil || w == nil {
		return reconcile.Result{}, err
	}
	now := c.Now()
	steps := Plan(now, *w)
	again, err := c.apply(ctx, w, steps)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("flow %s: %w", k, err)
	}
	at := steps.WakeAt
	if !again.IsZero() && (at.IsZero() || again.Before(at)) {
		at = again
	}
	return wake.At(at, now), nil
}
