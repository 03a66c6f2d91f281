package taskgroup

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/expect"
	"k8s4r.io/k8s4r/internal/controllers/wake"
	"k8s4r.io/k8s4r/internal/placement"
)

// Name of the controller.
const Name = "taskgroup"

// Binder finds robots for replicas that do not exist yet.
type Binder interface {
	// Bind replaces what the group of a job asks for and returns the robots that are
	// held for it, by the demand's name.
	Bind(ctx context.Context, g *v1alpha1.TaskGroup, j *v1alpha1.Job, demands []placement.Demand) (map[string]placement.Robot, error)
	// Release gives back the robot of a Task that was not created.
	Release(namespace, task string)
	// Forget drops all that a group asked for and did not use.
	Forget(namespace, group string)
	// OnGroup takes who is told of a group for which more robots were found.
	OnGroup(func(namespace, name string))
}

// Controller creates the Tasks of TaskGroups and writes their status.
type Controller struct {
	client.Client
	Config
	// Live reads what the cache may not show yet.
	Live   client.Reader
	Binder Binder
	Now    func() time.Time
	// Recorder takes what people should know.
	Recorder events.EventRecorder
	// Concurrency is the number of groups that are worked on at a time.
	Concurrency int

	expect *expect.Set
	tally  *tally
	robots *robotNews
}

// The fields by which the cache finds the groups of a job, and jobs of a type.
const (
	indexJob  = "spec.jobName"
	indexType = "spec.type"
)

// Add starts the controller with the manager.
func (c *Controller) Add(mgr ctrl.Manager) error {
	c.Config = c.WithDefaults()
	c.expect = expect.New(c.Now, mgr.GetLogger().WithName(Name))
	c.tally, c.robots = newTally(), newRobotNews()
	if err := index(mgr.GetFieldIndexer()); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named(Name).
		For(&v1alpha1.TaskGroup{}).
		Watches(&v1alpha1.Task{}, c.taskHandler()).
		Watches(&v1alpha1.Job{}, handler.EnqueueRequestsFromMapFunc(c.ofJob), whenStateChanges()).
		Watches(&v1alpha1.Robot{}, c.robotHandler()).
		WatchesRawSource(source.Func(c.listen)).
		WithOptions(controller.Options{MaxConcurrentReconciles: c.Concurrency}).
		Complete(c)
}

func index(fields client.FieldIndexer) error {
	return errors.Join(
		fields.IndexField(context.Background(), &v1alpha1.TaskGroup{}, indexJob, func(o client.Object) []string {
			return []string{o.(*v1alpha1.TaskGroup).Spec.JobName}
		}),
		fields.IndexField(context.Background(), &v1alpha1.Job{}, indexType, func(o client.Object) []string {
			return []string{o.(*v1alpha1.Job).Spec.Type}
		}),
	)
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// listen lets the binder wake the controller.
func (c *Controller) listen(_ context.Context, q queue) error {
	c.Binder.OnGroup(func(namespace, name string) {
		k := types.NamespacedName{Namespace: namespace, Name: name}
		var g v1alpha1.TaskGroup
		if err := c.Get(context.Background(), k, &g, client.UnsafeDisableDeepCopy); err != nil {
			return // gone, and its seats go when it is forgotten
		}
		c.tally.with(g.UID, func(m *members) { m.news++ })
		q.Add(reconcile.Request{NamespacedName: k})
	})
	return nil
}

// taskHandler feeds the tally, then wakes the group.
func (c *Controller) taskHandler() handler.EventHandler {
	see := func(o client.Object, q queue) {
		t := o.(*v1alpha1.Task)
		if owner := groupOf(t); owner != nil {
			c.tally.with(owner.UID, func(m *members) { m.see(c.Now(), t) })
			c.expect.Created(owner.UID, t.Name)
			q.Add(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: t.Namespace, Name: owner.Name}})
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { see(e.Object, q) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) { see(e.ObjectNew, q) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) {
			t := e.Object.(*v1alpha1.Task)
			if owner := groupOf(t); owner != nil {
				c.tally.drop(owner.UID, t.Name)
				q.Add(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: t.Namespace, Name: owner.Name}})
			}
		},
	}
}

// Reconcile brings one group a step on.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	w, err := c.observe(ctx, req.NamespacedName)
	if err != nil || w == nil {
		return reconcile.Result{}, err
	}
	now := c.Now()
	steps := Plan(now, c.Config, *w)
	again, err := c.apply(ctx, w, steps)
	if err != nil {
		return reconcile.Result{}, err
	}
	if again {
		return wake.At(now, now), nil
	}
	return wake.At(steps.WakeAt, now), nil
}
