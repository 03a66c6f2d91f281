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
	"k8s4r.io/k8s4r/internal/controllers/kit"
)

// Name is the name of the controller.
const Name = "cronjobflow"

// indexOwner is the index field of flows by the UID of their CronJobFlow.
const indexOwner = "metadata.controller.cron"

// Controller creates and deletes the JobFlows of CronJobFlows.
type Controller struct {
	client.Client
	Now      func() time.Time
	Recorder events.EventRecorder
	// Concurrency is the number of CronJobFlows that are reconciled concurrently.
	Concurrency int

	expect *kit.Expectations
}

// Add starts the controller with the manager.
func (c *Controller) Add(mgr ctrl.Manager) error {
	c.expect = kit.NewExpectations(c.Now, mgr.GetLogger().WithName(Name))
	err := mgr.GetFieldIndexer().IndexField(context.Background(), &flowv1.JobFlow{}, indexOwner, kit.ControllerUIDs("CronJobFlow"))
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

// Reconcile plans and applies the next actions for one CronJobFlow.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	in, err := c.observe(ctx, req)
	if err != nil || in == nil {
		return reconcile.Result{}, err
	}
	now := c.Now()
	actions := Plan(now, *in)
	if err := c.apply(ctx, in.Cron, actions); err != nil {
		return reconcile.Result{}, err
	}
	return kit.RequeueAt(actions.RequeueAt, now), nil
}

// observe reads the input of a plan. It returns nil if there is nothing to decide, or if
// the cache does not show our last write yet.
func (c *Controller) observe(ctx context.Context, req reconcile.Request) (*Input, error) {
	cron := &cronv1.CronJobFlow{}
	err := c.Get(ctx, req.NamespacedName, cron)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil || c.expect.IsStale(cron.UID, cron.ResourceVersion) {
		return nil, err
	}
	var flows flowv1.JobFlowList
	if err := c.List(ctx, &flows, client.InNamespace(cron.Namespace), client.MatchingFields{indexOwner: string(cron.UID)}); err != nil {
		return nil, fmt.Errorf("list flows: %w", err)
	}
	return &Input{Cron: cron, Flows: flows.Items}, nil
}

// apply executes the actions. The status is last: if lastScheduleTime were written before
// the flow exists, the flow could be skipped.
func (c *Controller) apply(ctx context.Context, cron *cronv1.CronJobFlow, actions Actions) error {
	for _, e := range actions.Events {
		c.Recorder.Eventf(cron, nil, e.Type, e.Reason, "Schedule", "%s", e.Message)
	}
	for _, f := range actions.Delete {
		if err := c.deleteFlow(ctx, cron, f); err != nil {
			return err
		}
	}
	if actions.Create != nil {
		if err := c.createFlow(ctx, cron, actions.Create); err != nil {
			return err
		}
	}
	if actions.Status == nil {
		return nil
	}
	cron.Status = *actions.Status
	_, err := c.expect.UpdateStatus(ctx, c, cron)
	return err
}

func (c *Controller) deleteFlow(ctx context.Context, cron *cronv1.CronJobFlow, f *flowv1.JobFlow) error {
	err := c.Delete(ctx, f, client.Preconditions{UID: &f.UID}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // deleted or replaced
	}
	if err != nil {
		return fmt.Errorf("delete flow %s: %w", f.Name, err)
	}
	c.Recorder.Eventf(cron, f, corev1.EventTypeNormal, "SuccessfulDelete", "Delete", "deleted flow %s", f.Name)
	return nil
}

// createFlow creates a flow. An existing flow of that name that the CronJobFlow owns is
// the same flow, created before the cache or the status showed it.
func (c *Controller) createFlow(ctx context.Context, cron *cronv1.CronJobFlow, f *flowv1.JobFlow) error {
	err := c.Create(ctx, f)
	if apierrors.IsAlreadyExists(err) {
		existing := &flowv1.JobFlow{ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: f.Name}}
		if owned, err := kit.ReadExisting(ctx, c, cron, existing); err != nil || owned {
			return err
		}
	}
	if err != nil {
		c.Recorder.Eventf(cron, nil, corev1.EventTypeWarning, "FailedCreate", "Create", "flow %s cannot be created: %s", f.Name, err)
		return fmt.Errorf("create flow %s: %w", f.Name, err)
	}
	c.Recorder.Eventf(cron, f, corev1.EventTypeNormal, "SuccessfulCreate", "Create", "created flow %s", f.Name)
	return nil
}
