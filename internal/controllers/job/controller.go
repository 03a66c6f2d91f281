package job

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/kit"
	"k8s4r.io/k8s4r/internal/core/rollout"
)

// Name of the controller.
const Name = "job"

// The fields by which the cache finds the groups and revisions of a job, and its Rollouts.
const (
	indexOwner  = "metadata.controller.uid"
	indexTarget = "job.spec.target.name"
)

// Controller creates the TaskGroups of Jobs and writes their status.
type Controller struct {
	client.Client
	// Live reads from the API server, past the cache.
	Live     client.Reader
	Now      func() time.Time
	Recorder events.EventRecorder
	// Tick is the least time between two status writes that only show progress, and before
	// the first one. 0 means DefaultTick.
	Tick time.Duration
	// Concurrency is the number of Jobs that are reconciled at the same time.
	Concurrency int
	// Archives keeps ended jobs until their condition Archived is true.
	Archives bool

	expect *kit.Expectations
	memory *kit.ObjectMemory[memory]
	// revisionWrites are the expectations about ControllerRevisions.
	revisionWrites *kit.Expectations
}

// memory is state of a job that is not stored in objects.
type memory struct {
	lastStatus time.Time // when the status was last written, or the job was first seen
	takenNames map[string]bool
	// takenRevisionNames is nil until there is one.
	takenRevisionNames map[string]bool
}

// Add starts the controller with the manager.
func (c *Controller) Add(mgr ctrl.Manager) error {
	if c.Tick == 0 {
		c.Tick = DefaultTick
	}
	c.expect = kit.NewExpectations(c.Now, mgr.GetLogger().WithName(Name))
	c.revisionWrites = kit.NewExpectations(c.Now, mgr.GetLogger().WithName(Name))
	c.memory = kit.NewObjectMemory(func() memory { return newMemory(c.Now()) })
	if err := addIndexes(mgr.GetFieldIndexer()); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named(Name).
		For(&v1alpha1.Job{}).
		Owns(&v1alpha1.TaskGroup{}).
		Owns(&appsv1.ControllerRevision{}).
		Watches(&v1alpha1.Rollout{}, handler.EnqueueRequestsFromMapFunc(findTarget), builder.WithPredicates(rolloutChanges)).
		WithOptions(controller.Options{MaxConcurrentReconciles: c.Concurrency}).
		Complete(c)
}

// addIndexes lets the cache find what belongs to a job.
func addIndexes(to client.FieldIndexer) error {
	for _, x := range []struct {
		kind  client.Object
		field string
		keys  client.IndexerFunc
	}{
		{&v1alpha1.TaskGroup{}, indexOwner, kit.ControllerUIDs("Job")},
		{&appsv1.ControllerRevision{}, indexOwner, kit.ControllerUIDs("Job")},
		{&v1alpha1.Rollout{}, indexTarget, rolloutTargets},
	} {
		if err := to.IndexField(context.Background(), x.kind, x.field, x.keys); err != nil {
			return fmt.Errorf("index %T by %s: %w", x.kind, x.field, err)
		}
	}
	return nil
}

// rolloutTargets returns the name of the job that a Rollout changes.
func rolloutTargets(o client.Object) []string {
	return rollout.TargetOf(o.(*v1alpha1.Rollout))
}

// findTarget returns the job that a Rollout changes, if it changes one.
func findTarget(_ context.Context, o client.Object) []reconcile.Request {
	if o.(*v1alpha1.Rollout).Spec.Target.IsAgent() {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: o.(*v1alpha1.Rollout).Spec.Target.Name}}}
}

// rolloutChanges leaves out the progress of a Rollout: only its revisions and its phase count for the job.
var rolloutChanges = predicate.TypedFuncs[client.Object]{UpdateFunc: func(e event.UpdateEvent) bool {
	was, is := &e.ObjectOld.(*v1alpha1.Rollout).Status, &e.ObjectNew.(*v1alpha1.Rollout).Status
	return was.Phase != is.Phase || was.Revision != is.Revision || was.FromRevision != is.FromRevision
}}

// Reconcile reconciles one Job.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	w, err := c.observe(ctx, req.NamespacedName)
	if err != nil || w == nil {
		return reconcile.Result{}, err
	}
	now := c.Now()
	actions := Plan(now, c.Tick, *w)
	again, err := c.apply(ctx, w.Job, actions)
	if err != nil {
		return reconcile.Result{}, err
	}
	if again {
		return kit.RequeueAt(now, now), nil
	}
	return kit.RequeueAt(actions.RequeueAt, now), nil
}
