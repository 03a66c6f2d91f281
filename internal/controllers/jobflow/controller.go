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
	"k8s4r.io/k8s4r/internal/controllers/jobflow/probe"
	"k8s4r.io/k8s4r/internal/controllers/kit"
)

// Name is the name of the controller.
const Name = "jobflow"

// Controller creates the Jobs of JobFlows and writes their status.
type Controller struct {
	client.Client
	// Live reads from the API server what the cache does not keep or does not show yet.
	Live     client.Reader
	Now      func() time.Time
	Recorder events.EventRecorder
	// Concurrency is the number of flows that are reconciled concurrently.
	Concurrency int
	// MaxRequeue bounds the retries in a row of a flow that cannot be reconciled. It then
	// waits until it, one of its Jobs or a template changes. Negative: unlimited.
	MaxRequeue int
	// Archives keeps an ended flow and its Jobs until its condition Archived is true.
	Archives bool

	expect *kit.Expectations
	memory memoryStore
	prober *probe.Prober
	// requeue receives flows that are to be reconciled without a watch event.
	requeue chan event.GenericEvent
}

// Reconcile plans and applies the next actions for one flow.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	result, err := c.reconcileFlow(ctx, req.NamespacedName)
	if err != nil && c.memory.recordFailure(req.NamespacedName, c.MaxRequeue) {
		ctrl.LoggerFrom(ctx).Error(err, "Giving up on the flow until something changes", "tries", c.MaxRequeue)
		c.recordRetriesExhausted(ctx, req.NamespacedName, err)
		return reconcile.Result{}, nil
	}
	if err == nil {
		c.memory.resetFailures(req.NamespacedName)
	}
	return result, err
}

// recordRetriesExhausted records an event that the flow is not retried until something
// changes.
func (c *Controller) recordRetriesExhausted(ctx context.Context, k types.NamespacedName, why error) {
	var f flowv1.JobFlow
	if err := c.Get(ctx, k, &f); err != nil {
		return // there is no flow to record an event on
	}
	c.recordEvent(&f, Event{Warning: true, Reason: reasonSync, Message: syncFailedMessage(f.Name, why.Error())})
}

func (c *Controller) reconcileFlow(ctx context.Context, k types.NamespacedName) (reconcile.Result, error) {
	in, err := c.observe(ctx, k)
	if err != nil || in == nil {
		return reconcile.Result{}, err
	}
	now := c.Now()
	actions := Plan(now, *in)
	again, err := c.apply(ctx, in, actions)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("flow %s: %w", k, err)
	}
	at := actions.RequeueAt
	if !again.IsZero() {
		kit.SetEarliest(&at, again)
	}
	return kit.RequeueAt(at, now), nil
}
