package retention

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"k8s4r.io/k8s4r/internal/controllers/kit"
)

// Name is the name of the controller.
const Name = "retention"

// batchDelay is the time after an object has finished until its namespace is planned. A plan lists
// all objects of the namespace, so many ends share one.
const batchDelay = time.Second

// Controller deletes finished objects, namespace by namespace.
type Controller struct {
	client.Client
	Now      func() time.Time
	Recorder events.EventRecorder
	// Limits are those of namespaces without annotations. If Age is 0, only namespaces with an
	// annotation have a retention.
	Limits Limits
	// Namespaces are those whose objects the cache has. If empty, it has all.
	Namespaces []string
	// Archives keeps finished objects until the archive controller has marked them.
	Archives bool
	// Jobs, Flows and VCJobs select the kinds.
	Jobs, Flows, VCJobs bool
	// Concurrency is the number of namespaces that are planned at the same time.
	Concurrency int

	invalid sync.Map // the last error of annotations that was reported, by namespace
}

// Add starts the controller with the manager.
func (c *Controller) Add(mgr ctrl.Manager) error {
	b := builder.ControllerManagedBy(mgr).Named(Name).
		WithOptions(controller.Options{MaxConcurrentReconciles: c.Concurrency}).
		WatchesMetadata(&corev1.Namespace{}, c.watchNamespaces())
	for _, k := range c.selectKinds() {
		b = b.Watches(k.object, watchFinished())
	}
	return b.Complete(c)
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// watchNamespaces triggers a plan of a namespace that is new or whose annotations have changed.
func (c *Controller) watchNamespaces() handler.EventHandler {
	add := func(q queue, name string) {
		if len(c.Namespaces) > 0 && !slices.Contains(c.Namespaces, name) {
			return
		}
		q.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: name}})
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { add(q, e.Object.GetName()) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			if !maps.Equal(e.ObjectOld.GetAnnotations(), e.ObjectNew.GetAnnotations()) {
				add(q, e.ObjectNew.GetName())
			}
		},
	}
}

// watchFinished triggers a plan of the namespace of a finished object.
func watchFinished() handler.EventHandler {
	add := func(q queue, o client.Object) {
		if _, _, ok := finishedAt(o); ok && !isExempt(o) {
			q.AddAfter(reconcile.Request{NamespacedName: types.NamespacedName{Name: o.GetNamespace()}}, batchDelay)
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { add(q, e.Object) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) { add(q, e.ObjectNew) },
	}
}

// Reconcile plans and deletes in one namespace.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	in, err := c.observe(ctx, req.Name)
	if err != nil || in == nil {
		return reconcile.Result{}, err
	}
	now := c.Now()
	actions := Plan(now, *in)
	if err := c.apply(ctx, actions); err != nil {
		return reconcile.Result{}, err
	}
	return kit.RequeueAt(actions.RequeueAt, now), nil
}
