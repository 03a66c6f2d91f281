package robotidentity

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/kit"
)

// Name is the name of the controller.
const Name = "robotidentity"

// Controller writes the accepted identity of robots.
type Controller struct {
	client.Client
	Config
	Now      func() time.Time
	Recorder events.EventRecorder
	// Concurrency is the number of robots that are reconciled at the same time.
	Concurrency int

	expect *kit.Expectations
}

// Add starts the controller with the manager.
func (c *Controller) Add(mgr ctrl.Manager) error {
	c.expect = kit.NewExpectations(c.Now, mgr.GetLogger().WithName(Name))
	return ctrl.NewControllerManagedBy(mgr).
		Named(Name).
		For(&v1alpha1.Robot{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: c.Concurrency}).
		Complete(c)
}

// Reconcile reconciles the identity of one Robot.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var r v1alpha1.Robot
	if err := c.Get(ctx, req.NamespacedName, &r); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if c.expect.IsStale(r.UID, r.ResourceVersion) {
		return reconcile.Result{}, nil // the watch event of our own write follows
	}
	return reconcile.Result{}, c.apply(ctx, &r, Plan(c.Now(), c.Config, &r))
}

func (c *Controller) apply(ctx context.Context, r *v1alpha1.Robot, actions Actions) error {
	for _, why := range actions.Reasons {
		ctrl.LoggerFrom(ctx).Info(why)
	}
	if actions.Status == nil {
		return nil
	}
	r.Status = *actions.Status
	if written, err := c.expect.UpdateStatus(ctx, c, r); !written {
		return err
	}
	if actions.Warning != "" {
		c.Recorder.Eventf(r, nil, corev1.EventTypeWarning, actions.Reason, "Identify", "%s", actions.Warning)
	}
	return nil
}
