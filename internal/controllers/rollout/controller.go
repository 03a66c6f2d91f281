package rollout

import (
	"context"
	"errors"
	"time"

	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/kit"
	"k8s4r.io/k8s4r/internal/core/rollout"
)

// Name of the controller.
const Name = "rollout"

// The fields by which the cache finds objects of a Job.
const (
	indexTarget = "spec.target.name"
	indexTasks  = "spec.jobName of jobs with revisions"
)

// Controller writes the status of Rollouts.
type Controller struct {
	client.Client
	// Live reads from the API server, past the cache.
	Live     client.Reader
	Now      func() time.Time
	Recorder events.EventRecorder
	// Tick is the least time between two status writes that only show counts. 0 means DefaultTick.
	Tick time.Duration
	// Heartbeats has the HeartbeatSlices of the robots. If nil, there are none.
	Heartbeats *kit.Heartbeats
	// Concurrency is the number of Rollouts that are reconciled at the same time.
	Concurrency int

	expect *kit.Expectations
	memory *kit.ObjectMemory[memory]
	robots *kit.RobotChanges

	windows kit.Windows
}

// memory is state of a Rollout that is not stored in objects.
type memory struct {
	lastStatus time.Time
	revisions  revisionCache
	fleet      fleetCache
	sightings  sightings
	orders     map[string]orderSighting // by robot
}

// Add starts the controller with the manager.
func (c *Controller) Add(mgr ctrl.Manager) error {
	if c.Tick == 0 {
		c.Tick = DefaultTick
	}
	c.expect = kit.NewExpectations(c.Now, mgr.GetLogger().WithName(Name))
	c.memory = kit.NewObjectMemory(func() memory { return memory{sightings: newSightings(c.Now())} })
	c.robots = kit.NewRobotChanges()
	if err := errors.Join(addIndexes(mgr.GetFieldIndexer()), c.Heartbeats.Watch(mgr)); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named(Name).
		For(&v1alpha1.Rollout{}).
		Watches(&v1alpha1.Rollout{}, c.siblingHandler()).
		Watches(&v1alpha1.Job{}, c.jobHandler()).
		Watches(&v1alpha1.Task{}, c.taskHandler()).
		Watches(&v1alpha1.Robot{}, c.robots.Handler(c.enqueueCounting)).
		Watches(&v1alpha1.MaintenanceWindow{}, c.windowHandler(), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.Robot{}, c.agentHandler()).
		Watches(&v1alpha1.Robot{}, c.prefetchHandler()).
		WithOptions(controller.Options{MaxConcurrentReconciles: c.Concurrency}).
		Complete(c)
}

func addIndexes(fields client.FieldIndexer) error {
	return errors.Join(
		fields.IndexField(context.Background(), &v1alpha1.Robot{}, indexOrders, indexOrder),
		fields.IndexField(context.Background(), &v1alpha1.Rollout{}, indexTarget, func(o client.Object) []string {
			return rollout.TargetOf(o.(*v1alpha1.Rollout))
		}),
		fields.IndexField(context.Background(), &v1alpha1.Task{}, indexTasks, func(o client.Object) []string {
			if t := o.(*v1alpha1.Task); mayHaveRevision(t) {
				return []string{t.Spec.JobName}
			}
			return nil
		}),
	)
}

// mayHaveRevision reports whether a Task may belong to a Job with revisions. Those of batch jobs are many, and
// none of them does; an init task of a service has their type.
func mayHaveRevision(t *v1alpha1.Task) bool {
	isBatch := t.Spec.Type == "" || t.Spec.Type == v1alpha1.JobTypeBatch
	return t.Spec.JobName != "" && (!isBatch || t.Spec.Stage > 0)
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Reconcile reconciles one Rollout.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	w, err := c.observe(ctx, req.NamespacedName)
	if err != nil {
		return reconcile.Result{}, err
	}
	now := c.Now()
	if w == nil {
		again, err := c.dropOrders(ctx, now, req.NamespacedName)
		return kit.RequeueAt(again, now), err
	}
	fetching, err := c.planPrefetch(ctx, now, w)
	if err != nil {
		return reconcile.Result{}, err
	}
	if rollout.IsPrefetching(w.Rollout) {
		w.Prefetched = &fetching.plan.Prefetched
	}
	actions := Plan(now, c.Tick, *w)
	c.memory.Update(req.NamespacedName, w.Rollout.UID, func(m *memory) {
		m.sightings.recordStates(now, w.Units, actions.States)
		m.sightings.recordUnreverted(now, actions.Unreverted)
	})
	again, err := c.applyPrefetch(ctx, now, fetching)
	if err := errors.Join(c.apply(ctx, w.Rollout, actions), err); err != nil {
		return reconcile.Result{}, err
	}
	for _, at := range []time.Time{fetching.plan.RequeueAt, again} {
		if !at.IsZero() {
			kit.SetEarliest(&actions.RequeueAt, at)
		}
	}
	return kit.RequeueAt(actions.RequeueAt, now), nil
}
