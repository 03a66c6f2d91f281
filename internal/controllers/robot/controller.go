package robot

import (
	"context"
	"fmt"
	"slices"
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
	"k8s4r.io/k8s4r/internal/controllers/expect"
	"k8s4r.io/k8s4r/internal/controllers/wake"
	"k8s4r.io/k8s4r/internal/lifecycle"
)

// Name of the controller.
const Name = "robot"

// Controller writes what Plan decides.
type Controller struct {
	client.Client
	Config
	Now      func() time.Time
	Recorder events.EventRecorder
	// Concurrency is the number of robots that are written at a time.
	Concurrency int

	expect *expect.Set
	held   *held
}

// indexID is the field by which the cache finds the robots of one id in all
// namespaces.
const indexID = "spec.robotId"

// Add starts the controller with the manager.
func (c *Controller) Add(mgr ctrl.Manager) error {
	c.Config = c.WithDefaults()
	c.expect = expect.New(c.Now, mgr.GetLogger().WithName(Name))
	c.held = newHeld()
	err := mgr.GetFieldIndexer().IndexField(context.Background(), &v1alpha1.Robot{}, indexID, func(o client.Object) []string {
		return []string{o.(*v1alpha1.Robot).Spec.RobotID}
	})
	if err != nil {
		return fmt.Errorf("index robots by id: %w", err)
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named(Name).
		For(&v1alpha1.Robot{}).
		Watches(&v1alpha1.Robot{}, handler.EnqueueRequestsFromMapFunc(c.twins)).
		Watches(&v1alpha1.Task{}, c.taskHandler()).
		WithOptions(controller.Options{MaxConcurrentReconciles: c.Concurrency}).
		Complete(c)
}

// twins names the robots of the same id in other namespaces, which may come
// in once this one is gone.
func (c *Controller) twins(ctx context.Context, o client.Object) []reconcile.Request {
	var out []reconcile.Request
	for _, r := range c.sameID(ctx, o.(*v1alpha1.Robot)) {
		out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(r)})
	}
	return out
}

// sameID are the other robots with the id of r.
func (c *Controller) sameID(ctx context.Context, r *v1alpha1.Robot) []*v1alpha1.Robot {
	return slices.DeleteFunc(c.ofID(ctx, r.Spec.RobotID), func(o *v1alpha1.Robot) bool { return o.UID == r.UID })
}

// ofID are the robots of an id.
func (c *Controller) ofID(ctx context.Context, id string) (out []*v1alpha1.Robot) {
	var list v1alpha1.RobotList
	if err := c.List(ctx, &list, client.MatchingFields{indexID: id}, client.UnsafeDisableDeepCopy); err != nil {
		return nil // the cache has stopped, and with it the controller
	}
	for i := range list.Items {
		out = append(out, &list.Items[i])
	}
	return out
}

// elder is the namespace of an older robot with the id of r.
func (c *Controller) elder(ctx context.Context, r *v1alpha1.Robot) string {
	for _, o := range c.sameID(ctx, r) {
		if o.CompareAge(r) < 0 {
			return o.Namespace
		}
	}
	return ""
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// taskHandler counts the tasks of each robot.
func (c *Controller) taskHandler() handler.EventHandler {
	wake := func(ctx context.Context, ids []string, q queue) {
		for _, id := range ids {
			for _, r := range c.ofID(ctx, id) {
				q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(r)})
			}
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) {
			wake(ctx, c.held.see(e.Object.(*v1alpha1.Task)), q)
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			wake(ctx, c.held.see(e.ObjectNew.(*v1alpha1.Task)), q)
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
			wake(ctx, c.held.drop(client.ObjectKeyFromObject(e.Object)), q)
		},
	}
}

// Reconcile brings one robot a step on.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	w, err := c.observe(ctx, req.NamespacedName)
	if err != nil || w == nil {
		return reconcile.Result{}, err
	}
	now := c.Now()
	steps := Plan(now, c.Config, *w)
	if err := c.apply(ctx, w.Robot, steps); err != nil {
		return reconcile.Result{}, err
	}
	return wake.At(steps.WakeAt, now), nil
}

// observe reads what a decision about the robot depends on. It returns nil
// when there is nothing to decide.
func (c *Controller) observe(ctx context.Context, k key) (*World, error) {
	var r v1alpha1.Robot
	err := c.Get(ctx, k, &r)
	if apierrors.IsNotFound(err) {
		c.held.forget(k)
		return nil, nil
	}
	if err != nil || c.expect.Stale(r.UID, r.ResourceVersion) {
		return nil, err
	}
	w := &World{Robot: &r, Elder: c.elder(ctx, &r)}
	w.Tasks, w.LastCount = c.held.of(k)
	if w.Elder != "" {
		w.Tasks = 0 // they are on the other
	}
	w.Robots = c.held.robots(k)
	return w, nil
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
	c.held.wrote(client.ObjectKeyFromObject(r), c.Now())
	if steps.Warning != "" {
		c.Recorder.Eventf(r, nil, corev1.EventTypeWarning, "IDTaken", "Approve", "%s", steps.Warning)
	}
	if steps.Phase != "" {
		kind := corev1.EventTypeNormal
		if steps.Phase == lifecycle.RobotOffline {
			kind = corev1.EventTypeWarning
		}
		c.Recorder.Eventf(r, nil, kind, string(steps.Phase), "Follow", "%s", r.Status.Message)
	}
	return nil
}
