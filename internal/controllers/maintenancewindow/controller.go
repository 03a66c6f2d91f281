package maintenancewindow

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/kit"
)

// Name is the name of the controller.
const Name = "maintenancewindow"

// robotDelay is how long changes of robots are collected before the windows count them.
const robotDelay = time.Second

// Controller writes the status of MaintenanceWindows.
type Controller struct {
	client.Client
	Now      func() time.Time
	Recorder events.EventRecorder
	// Concurrency is the number of windows that are reconciled at the same time.
	Concurrency int
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Add starts the controller with the manager.
func (c *Controller) Add(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named(Name).
		For(&v1alpha1.MaintenanceWindow{}).
		Watches(&v1alpha1.Robot{}, c.robotHandler()).
		WithOptions(controller.Options{MaxConcurrentReconciles: c.Concurrency}).
		Complete(c)
}

// robotHandler enqueues the windows of a namespace when one of its robots is created or deleted, or has other labels.
func (c *Controller) robotHandler() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { c.enqueueWindows(ctx, e.Object, q) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { c.enqueueWindows(ctx, e.Object, q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			before, after := e.ObjectOld.(*v1alpha1.Robot), e.ObjectNew.(*v1alpha1.Robot)
			if !maps.Equal(before.Labels, after.Labels) || !maps.Equal(before.Spec.Labels, after.Spec.Labels) {
				c.enqueueWindows(ctx, after, q)
			}
		},
	}
}

func (c *Controller) enqueueWindows(ctx context.Context, robot client.Object, q queue) {
	var all v1alpha1.MaintenanceWindowList
	if err := c.List(ctx, &all, client.InNamespace(robot.GetNamespace()), client.UnsafeDisableDeepCopy); err != nil {
		return // the cache has stopped, and with it the controller
	}
	for i := range all.Items {
		q.AddAfter(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&all.Items[i])}, robotDelay)
	}
}

// Reconcile writes the status of one window.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var w v1alpha1.MaintenanceWindow
	if err := c.Get(ctx, req.NamespacedName, &w); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	var robots v1alpha1.RobotList
	if err := c.List(ctx, &robots, client.InNamespace(w.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, fmt.Errorf("list robots: %w", err)
	}
	now := c.Now()
	actions := Plan(now, Input{Window: &w, Robots: robots.Items})
	if err := c.apply(ctx, &w, actions); err != nil {
		return reconcile.Result{}, err
	}
	return kit.RequeueAt(actions.RequeueAt, now), nil
}

// apply writes the status, and then the event about it. After a conflict the next version of the window triggers
// another plan.
func (c *Controller) apply(ctx context.Context, w *v1alpha1.MaintenanceWindow, actions Actions) error {
	if actions.Status == nil {
		return nil
	}
	w.Status = *actions.Status
	err := c.Status().Update(ctx, w)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("update status of maintenance window %s: %w", w.Name, err)
	}
	if actions.Warning != "" {
		c.Recorder.Eventf(w, nil, corev1.EventTypeWarning, v1alpha1.ReasonInvalidSpec, "MaintenanceWindow", "%s", actions.Warning)
	}
	return nil
}
