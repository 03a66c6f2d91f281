package archive

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	cronv1 "k8s4r.io/k8s4r/api/cron/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/archive"
	"k8s4r.io/k8s4r/internal/controllers/kit"
)

// Name is the name of the controller.
const Name = "archive"

// Cache indexes of the objects of a job and of the jobs of a flow.
const (
	indexJob  = "archive.jobName"
	indexFlow = "archive.flow.uid"
)

// Controller records objects in the archive.
type Controller struct {
	client.Client
	Store    *archive.Store
	Now      func() time.Time
	Recorder events.EventRecorder
	// Retention bounds the age and the size of the archive.
	Retention archive.Retention
	// Robots (with Jobs, TaskGroups and Tasks), Flows (with the VCJobs of their steps), VCJobs and
	// RayClusters select the kinds. VCJobs are marked only if this manager deletes them.
	Robots, Flows, VCJobs, RayClusters bool
	// ReadActions records who changed objects, from the annotation that only admission writes.
	ReadActions bool
	// Concurrency is the number of objects that are recorded at the same time, and so in one batch.
	Concurrency int

	// recordedKeys holds the recordKey of the last recorded version, by UID.
	recordedKeys sync.Map
	// recordedActions holds the last annotation whose actions were recorded, by UID.
	recordedActions sync.Map

	deletedObjects deletedObjects
	health         archiveHealth
	batches        batchRecorder
}

// request identifies one object. It has the kind, because two kinds may share a name.
type request struct {
	kind archive.Kind
	key  types.NamespacedName
}

// recordedKinds returns the kinds to record, each with an object to read into.
func (c *Controller) recordedKinds() map[archive.Kind]client.Object {
	all := map[archive.Kind]client.Object{}
	if c.Robots {
		all[archive.Job], all[archive.TaskGroup] = &v1alpha1.Job{}, &v1alpha1.TaskGroup{}
		all[archive.Task], all[archive.Robot] = &v1alpha1.Task{}, &v1alpha1.Robot{}
	}
	if c.Flows {
		all[archive.JobFlow] = &flowv1.JobFlow{}
		all[archive.CronJobFlow] = &cronv1.CronJobFlow{}
	}
	if c.VCJobs || c.Flows {
		all[archive.VCJob] = &batchv1.Job{}
	}
	if c.RayClusters {
		all[archive.RayCluster] = &rayv1.RayCluster{}
	}
	return all
}

// Add starts the controller with the manager.
func (c *Controller) Add(mgr ctrl.Manager) error {
	c.batches.write = c.recordTransaction
	if err := c.addIndexes(mgr.GetFieldIndexer()); err != nil {
		return err
	}
	if err := mgr.Add(manager.RunnableFunc(c.pruneLoop)); err != nil {
		return err
	}
	b := builder.TypedControllerManagedBy[request](mgr).Named(Name).
		WithOptions(controller.TypedOptions[request]{MaxConcurrentReconciles: c.Concurrency})
	for kind, o := range c.recordedKinds() {
		b = b.Watches(o, c.newEventHandler(kind))
	}
	return b.Complete(c)
}

// addIndexes indexes the objects of jobs and the jobs of flows.
func (c *Controller) addIndexes(to client.FieldIndexer) error {
	ofJob := func(o client.Object) []string {
		switch o := o.(type) {
		case *v1alpha1.Task:
			return []string{o.Spec.JobName}
		case *v1alpha1.TaskGroup:
			return []string{o.Spec.JobName}
		}
		return nil
	}
	if c.Robots {
		for _, o := range []client.Object{&v1alpha1.Task{}, &v1alpha1.TaskGroup{}} {
			if err := to.IndexField(context.Background(), o, indexJob, ofJob); err != nil {
				return fmt.Errorf("index %T by job: %w", o, err)
			}
		}
	}
	if c.Flows {
		for _, o := range []client.Object{&v1alpha1.Job{}, &batchv1.Job{}} {
			if err := to.IndexField(context.Background(), o, indexFlow, kit.ControllerUIDs("JobFlow")); err != nil {
				return fmt.Errorf("index %T by flow: %w", o, err)
			}
		}
	}
	return nil
}

type queue = workqueue.TypedRateLimitingInterface[request]

func (c *Controller) newEventHandler(kind archive.Kind) handler.TypedEventHandler[client.Object, request] {
	add := func(o client.Object, q queue) {
		q.Add(request{kind, client.ObjectKeyFromObject(o)})
		if flow, ok := flowOf(o); ok && c.Flows {
			q.Add(request{archive.JobFlow, flow}) // a flow waits for its Jobs
		}
	}
	return handler.TypedFuncs[client.Object, request]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[client.Object], q queue) { add(e.Object, q) },
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[client.Object], q queue) { add(e.ObjectNew, q) },
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[client.Object], q queue) {
			c.deletedObjects.addObject(request{kind, client.ObjectKeyFromObject(e.Object)}, e.Object, c.Now())
			add(e.Object, q)
		},
	}
}

// Reconcile records one object, and deleted objects of the same name.
func (c *Controller) Reconcile(ctx context.Context, r request) (reconcile.Result, error) {
	for _, o := range c.deletedObjects.objectsOf(r) {
		if err := c.recordObject(ctx, o.object, &o.at); err != nil {
			return retryResult(err)
		}
		c.deletedObjects.removeObject(r, o.object.GetUID())
	}
	o, ok := c.recordedKinds()[r.kind]
	if !ok {
		return reconcile.Result{}, nil
	}
	if err := c.Get(ctx, r.key, o); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if err := c.recordObject(ctx, o, nil); err != nil {
		return retryResult(err)
	}
	return reconcile.Result{}, nil
}

// recordObject records one object. deleted is when its deletion was observed, or nil if it exists.
func (c *Controller) recordObject(ctx context.Context, o client.Object, deleted *time.Time) error {
	if err := c.recordActions(ctx, o, deleted != nil); err != nil {
		return err
	}
	if deleted != nil {
		c.recordedActions.Delete(o.GetUID())
	}
	if _, ok := o.(*cronv1.CronJobFlow); ok {
		return nil // only its actions are recorded
	}
	w, err := c.observe(ctx, o, deleted != nil)
	if err != nil {
		return err
	}
	return c.apply(ctx, o, w, Plan(*w), deleted)
}
