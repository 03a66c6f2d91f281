package cronjobflow

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	cronv1 "k8s4r.io/k8s4r/api/cron/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/expect"
	"k8s4r.io/k8s4r/internal/controllers/wake"
)

// Name of the controller.
const Name = "cronjobflow"

// indexOwner is the field by which the cache finds the flows of a CronJobFlow.
const indexOwner = "metadata.controller.cron"

// Controller does what Plan decides.
type Controller struct {
	client.Client
	Now      func() time.Time
	Recorder events.EventRecorder
	// Concurrency is the number of CronJobFlows that are worked on at a time.
	Concurrency int

	expect *expect.Set
}

// Add starts the controller with the manager.
func (c *Controller) Add(mgr ctrl.Manager) error {
	c.expect = expect.New(c.Now, mgr.GetLogger().WithName(Name))
	err := mgr.GetFieldIndexer().IndexField(context.Background(), &flowv1.JobFlow{}, indexOwner, func(o client.Object) []string {
		if owner := metav1.GetControllerOf(o); owner != nil && owner.Kind == "CronJobFlow" {
			return []string{string(owner.UID)}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("index flows by owner: %w", err)
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named(Name).
		For(&cronv1.CronJobFlow{}).
		Owns(&flowv1.JobFlow{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: c.Concurrency}).
		Complete(c)
}

// Reconcile brings one CronJobFlow a step on.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	w, err := c.observe(ctx, req)
	if err != nil || w == nil {
		return reconcile.Result{}, err
	}
	now := c.Now()
	steps := Plan(now, *w)
	if err := c.apply(ctx, w.Cron, steps); err != nil {
		return reconcile.Result{}, err
	}
	return wake.At(steps.WakeAt, now), nil
}

// observe reads what a decision depends on. It returns nil when there is nothing to
// decide, or not yet: the cache does not show our own last write.
func (c *Controller) observe(ctx context.Context, req reconcile.Request) (*World, error) {
	cron := &cronv1.CronJobFlow{}
	err := c.Get(ctx, req.NamespacedName, cron)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil || c.expect.Stale(cron.UID, cron.ResourceVersion) {
		return nil, err
	}
	var flows flowv1.JobFlowList
	if err := c.List(ctx, &flows, client.InNamespace(cron.Namespace), client.MatchingFields{indexOwner: string(cron.UID)}); err != nil {
		return nil, fmt.Errorf("list flows: %w", err)
	}
	return &World{Cron: cron, Flows: flows.Items}, nil
}

// apply does the steps. The status is last: what it says of the last time must be so,
// or a flow would be left out.
func (c *Controller) apply(ctx context.Context, cron *cronv1.CronJobFlow, steps Steps) error {
	for _, e := range steps.Events {
		c.Recorder.Eventf(cron, nil, e.Type, e.Reason, "Schedule", "%s", e.Message)
	}
	for _, f := range steps.Delete {
		if err := c.delete(ctx, cron, f); err != nil {
			return err
		}
	}
	if steps.Create != nil {
		if err := c.create(ctx, cron, steps.Create); err != nil {
			return err
		}
	}
	if steps.Status == nil {
		return nil
	}
	cron.Status = *steps.Status
	_, err := c.expect.UpdateStatus(ctx, c, cron)
	return err
}

func (c *Controller) delete(ctx context.Context, cron *cronv1.CronJobFlow, f *flowv1.JobFlow) error {
	err := c.Delete(ctx, f, client.Preconditions{UID: &f.UID}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // it is gone, or another has its name
	}
	if err != nil {
		return fmt.Errorf("delete flow %s: %w", f.Name, err)
	}
	c.Recorder.Eventf(cron, f, corev1.EventTypeNormal, "SuccessfulDelete", "Delete", "deleted flow %s", f.Name)
	return nil
}

// create makes a flow. One of that name that is ours is the same, made before the
// cache or the status could show it.
func (c *Controller) create(ctx context.Context, cron *cronv1.CronJobFlow, f *flowv1.JobFlow) error {
	err := c.Create(ctx, f)
	if apierrors.IsAlreadyExists(err) {
		there := &flowv1.JobFlow{}
		if err := c.Get(ctx, client.ObjectKeyFromObject(f), there); err != nil {
			return fmt.Errorf("get flow %s: %w", f.Name, err)
		}
		if metav1.IsControlledBy(there, cron) {
			return nil
		}
	}
	if err != nil {
		c.Recorder.Eventf(cron, nil, corev1.EventTypeWarning, "FailedCreate", "Create", "flow %s cannot be created: %s", f.Name, err)
		return fmt.Errorf("create flow %s: %w", f.Name, err)
	}
	c.Recorder.Eventf(cron, f, corev1.EventTypeNormal, "SuccessfulCreate", "Create", "created flow %s", f.Name)
	return nil
}
