package archive

import (
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/archive"
)

// Name of the controller.
const Name = "archive"

// The fields by which the cache finds what names a job, and the jobs of a flow.
const (
	indexJob  = "archive.jobName"
	indexFlow = "archive.flow.uid"
)

// Controller records objects.
type Controller struct {
	client.Client
	Store    *archive.Store
	Now      func() time.Time
	Recorder events.EventRecorder
	// Retention is what is kept of what is recorded.
	Retention archive.Retention
	// Flows with the VCJobs of their steps, VCJobs and RayClusters are recorded too, where
	// this manager works on them. VCJobs are marked only where it removes them.
	Flows, VCJobs, RayClusters bool
	// Concurrency is the number of objects that are recorded at a time.
	Concurrency int

	// noted is the mark of what was last recorded, by UID.
	noted sync.Map
	gone  gone
	link  link
}

// request names one object. Two of our kinds share a name.
type request struct {
	kind archive.Kind
	key  types.NamespacedName
}

// kinds that are recorded, each with an object to read it into.
func (c *Controller) kinds() map[archive.Kind]client.Object {
	all := map[archive.Kind]client.Object{
		archive.Job: &v1alpha1.Job{}, archive.TaskGroup: &v1alpha1.TaskGroup{}, archive.Task: &v1alpha1.Task{}, archive.Robot: &v1alpha1.Robot{},
	}
	if c.Flows {
		all[archive.JobFlow] = &flowv1.JobFlow{}
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
	index := func(o client.Object) []string {
		switch o := o.(type) {
		case *v1alpha1.Task:
			return []string{o.Spec.JobName}
		case *v1alpha1.TaskGroup:
			return []string{o.Spec.JobName}
		}
		return nil
	}
	for _, o := range []client.Object{&v1alpha1.Task{}, &v1alpha1.TaskGroup{}} {
		if err := mgr.GetFieldIndexer().IndexField(context.Background(), o, indexJob, index); err != nil {
			return fmt.Errorf("index %T by job: %w", o, err)
		}
	}
	if c.Flows {
		ofFlow := func(o client.Object) []string {
			if owner := metav1.GetControllerOfNoCopy(o); owner != nil && owner.Kind == "JobFlow" {
				return []string{string(owner.UID)}
			}
			return nil
		}
		for _, o := range []client.Object{&v1alpha1.Job{}, &batchv1.Job{}} {
			if err := mgr.GetFieldIndexer().IndexField(context.Background(), o, indexFlow, ofFlow); err != nil {
				return fmt.Errorf("index %T by flow: %w", o, err)
			}
		}
	}
	if err := mgr.Add(manager.RunnableFunc(c.keep)); err != nil {
		return err
	}
	b := builder.TypedControllerManagedBy[request](mgr).Named(Name).
		WithOptions(controller.TypedOptions[request]{MaxConcurrentReconciles: c.Concurrency})
	for kind, o := range c.kinds() {
		b = b.Watches(o, c.watch(kind))
	}
	return b.Complete(c)
}

// queue of what is to be looked at.
type queue = workqueue.TypedRateLimitingInterface[request]

func (c *Controller) watch(kind archive.Kind) handler.TypedEventHandler[client.Object, request] {
	add := func(o client.Object, q queue) {
		q.Add(request{kind, client.ObjectKeyFromObject(o)})
		if flow, ok := flowOf(o); ok && c.Flows {
			q.Add(request{archive.JobFlow, flow}) // it waits for its Jobs
		}
	}
	return handler.TypedFuncs[client.Object, request]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[client.Object], q queue) { add(e.Object, q) },
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[client.Object], q queue) { add(e.ObjectNew, q) },
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[client.Object], q queue) {
			c.gone.add(request{kind, client.ObjectKeyFromObject(e.Object)}, e.Object, c.Now())
			add(e.Object, q)
		},
	}
}

// Reconcile records one object as it is now, and those of its name that have gone.
func (c *Controller) Reconcile(ctx context.Context, r request) (reconcile.Result, error) {
	for _, o := range c.gone.of(r) {
		if err := c.record(ctx, o.object, &o.at); err != nil {
			return later(err)
		}
		c.gone.done(r, o.object.GetUID())
	}
	o, ok := c.kinds()[r.kind]
	if !ok {
		return reconcile.Result{}, nil
	}
	if err := c.Get(ctx, r.key, o); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if err := c.record(ctx, o, nil); err != nil {
		return later(err)
	}
	return reconcile.Result{}, nil
}

// record brings one object into the archive. deleted is when it went; nil: it is there.
func (c *Controller) record(ctx context.Context, o client.Object, deleted *time.Time) error {
	w, err := c.observe(ctx, o, deleted != nil)
	if err != nil {
		return err
	}
	return c.apply(ctx, o, w, Plan(*w), deleted)
}
