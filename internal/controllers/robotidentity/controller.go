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
	"k8s4r.io/k8s4r/internal/controllers/expect"
)

// Name of the controller.
const Name = "robotidentity"

// Controller writes what Plan decides.
type Controller struct {
	client.Client
	Config
	Now      func() time.Time
	Recorder events.EventRecorder
	// Concurrency is the number of robots that are written at a time.
	Concurrency int

	expect *expect.Set
}

// Add starts the controller with the manager.
func (c *Controller) Add(mgr ctrl.Manager) error {
	c.expect = expect.New(c.Now, mgr.GetLogger().WithName(Name))
	return ctrl.NewControllerManagedBy(mgr).
		Named(Name).
		For(&v1alpha1.Robot{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: c.Concurrency}).
		Complete(c)
}

// Reconcile brings one robot a step on.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var r v1alpha1.Robot
	if err := c.Get(ctx, req.NamespacedName, &r); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if c.expect.Stale(r.UID, r.ResourceVersion) {
		return reconcile.Result{}, nil // the watch will bring what we wrote
	}
	return reconcile.Result{}, c.apply(ctx, &r, Plan(c.Now(), c.Config, &r))
}

func (c *Controller) apply(ctx context.Context, r *v1alpha1.Robot, steps Steps) error {
	for _, why := range steps.Why {
		ctrl.LoggerFrom(ctx).Info(why)
	}
	if steps.Status == nil {
		return nil
	}
	r.Status = *steps.Status
	if written, err := c.expect.UpdateStatus(ctx, c, r); !written {
		return err
	}
	if steps.Warning != "" {
		c.Recorder.Eventf(r, nil, corev1.EventTypeWarning, steps.Reason, "Identify", "%s", steps.Warning)
	}
	return nil
}
