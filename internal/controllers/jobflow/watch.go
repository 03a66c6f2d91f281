package jobflow

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/child"
	"k8s4r.io/k8s4r/internal/controllers/expect"
	"k8s4r.io/k8s4r/internal/controllers/jobflow/probe"
)

// The fields by which the cache finds things.
const (
	// indexOwner of Jobs is the UID of their flow.
	indexOwner = "metadata.controller.flow"
	// indexTemplate of flows are the templates of their steps.
	indexTemplate = "spec.flows.template"
	// indexMentions of templates is true if they refer to outputs.
	indexMentions = "spec.mentions"
)

// definitions are the changes of what a template says. Its status counts Jobs: each of
// those would wake all flows that name it.
var definitions = builder.WithPredicates(predicate.GenerationChangedPredicate{})

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Add starts the controller with the manager.
func (c *Controller) Add(mgr ctrl.Manager) error {
	c.expect = expect.New(c.Now, mgr.GetLogger().WithName(Name))
	c.memory = newMemories()
	c.again = make(chan event.GenericEvent, 1024)
	c.prober = probe.New(probe.Config{Pods: c.podsOf, Changed: c.changed})
	if err := mgr.Add(c.prober); err != nil {
		return fmt.Errorf("add the prober: %w", err)
	}
	if err := index(mgr.GetFieldIndexer()); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named(Name).
		For(&flowv1.JobFlow{}).
		Watches(&batchv1.Job{}, c.onJob()).
		Watches(&robotv1.Job{}, c.onJob()).
		Watches(&flowv1.JobTemplate{}, c.onTemplate(Pods), definitions).
		Watches(&robotv1.JobTemplate{}, c.onTemplate(Robots), definitions).
		Watches(&corev1.Namespace{}, onNamespace(), builder.OnlyMetadata).
		WatchesRawSource(source.Channel(c.again, &handler.EnqueueRequestForObject{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: c.Concurrency}).
		Complete(c)
}

func index(to client.FieldIndexer) error {
	add := func(o client.Object, field string, value client.IndexerFunc) error {
		if err := to.IndexField(context.Background(), o, field, value); err != nil {
			return fmt.Errorf("index %T by %s: %w", o, field, err)
		}
		return nil
	}
	for _, o := range []client.Object{&batchv1.Job{}, &robotv1.Job{}} {
		if err := add(o, indexOwner, flowUID); err != nil {
			return err
		}
	}
	for _, o := range []client.Object{&flowv1.JobTemplate{}, &robotv1.JobTemplate{}} {
		if err := add(o, indexMentions, mentions); err != nil {
			return err
		}
	}
	return add(&flowv1.JobFlow{}, indexTemplate, templatesOf)
}

func flowUID(o client.Object) []string {
	if _, id, ok := ownerOf(o); ok {
		return []string{string(id)}
	}
	return nil
}

// mentions tells whether a template refers to outputs of steps.
func mentions(o client.Object) []string {
	var spec any
	switch t := o.(type) {
	case *flowv1.JobTemplate:
		spec = t.Spec
	case *robotv1.JobTemplate:
		spec = t.Spec
	}
	if text, err := json.Marshal(spec); err == nil && strings.Contains(string(text), mention) {
		return []string{"true"}
	}
	return nil
}

func templatesOf(o client.Object) []string {
	f, ok := o.(*flowv1.JobFlow)
	if !ok {
		return nil
	}
	var out []string
	for i := range f.Spec.Flows {
		out = append(out, templateOf(&f.Spec.Flows[i]).String())
	}
	return out
}

// String is the template as an index has it.
func (k TemplateKey) String() string { return string(k.Kind) + "/" + k.Name }

// onJob wakes the flow that a Job belongs to, and on its end those that wanted its
// name.
func (c *Controller) onJob() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { c.wakeOwner(e.Object, q) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			if !equality.Semantic.DeepEqual(view(e.ObjectOld), view(e.ObjectNew)) {
				c.wakeOwner(e.ObjectNew, q)
			}
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) { c.jobDeleted(e.Object, q) },
	}
}

// jobDeleted remembers the last word of a Job, which the cache has no more: one that
// completed and went at once has completed (contract §6.35).
func (c *Controller) jobDeleted(o client.Object, q queue) {
	for _, k := range c.memory.free(o.GetNamespace(), o.GetName()) {
		q.Add(reconcile.Request{NamespacedName: k})
	}
	k, id, ok := ownerOf(o)
	if !ok {
		return
	}
	c.expect.Created(id, o.GetName()) // it does not show any more
	c.memory.Late(k, id, func(m *memory) { m.gone[o.GetUID()] = view(o) })
	c.wakeOwner(o, q)
}

// view of a Job of either kind.
func view(o client.Object) *Job {
	switch j := o.(type) {
	case *batchv1.Job:
		return podsJob(j)
	case *robotv1.Job:
		return robotsJob(j)
	}
	return nil
}

// gather is how long the events of a flow are gathered, for each of its steps, and
// gatherMost in all. A look at a flow takes the longer the more steps it has; one for
// each event would take the square of that.
const (
	gather     = 100 * time.Microsecond
	gatherMost = 100 * time.Millisecond
)

func (c *Controller) wakeOwner(o client.Object, q queue) {
	k, _, ok := ownerOf(o)
	if !ok {
		return
	}
	if n := c.memory.size(k); n > largeFlow {
		q.AddAfter(reconcile.Request{NamespacedName: k}, min(time.Duration(n)*gather, gatherMost))
		return
	}
	q.Add(reconcile.Request{NamespacedName: k})
}

// onTemplate wakes the flows that have a step of the template: one that was missing is
// there (contract §6.33), one that did not fit may.
func (c *Controller) onTemplate(kind Kind) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
		var flows flowv1.JobFlowList
		err := c.List(ctx, &flows, client.InNamespace(o.GetNamespace()),
			client.MatchingFields{indexTemplate: TemplateKey{kind, o.GetName()}.String()}, client.UnsafeDisableDeepCopy)
		if err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "The flows of a template could not be listed", "template", o.GetName())
			return nil
		}
		var out []reconcile.Request
		for i := range flows.Items {
			k := client.ObjectKeyFromObject(&flows.Items[i])
			c.memory.mended(k)
			out = append(out, reconcile.Request{NamespacedName: k})
		}
		return out
	})
}

// onNamespace drops the counts of a namespace that is gone.
func onNamespace() handler.EventHandler {
	return handler.Funcs{
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, _ queue) { dropCounts(e.Object.GetName()) },
	}
}

// changed brings a flow back whose probes say something else.
func (c *Controller) changed(k types.NamespacedName) {
	f := &flowv1.JobFlow{ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: k.Name}}
	c.again <- event.GenericEvent{Object: f}
}

// podsOf reads the Pods of Jobs, for their probes and their outputs. They are few and
// seldom read: no cache keeps all Pods of the cluster for them.
func (c *Controller) podsOf(ctx context.Context, namespace string, jobs []probe.Job) ([]corev1.Pod, error) {
	var out []corev1.Pod
	for _, j := range jobs {
		var pods corev1.PodList
		if err := c.Live.List(ctx, &pods, client.InNamespace(namespace), client.MatchingLabels{batchv1.KeyJobName: child.Label(j.Name)}); err != nil {
			return nil, err
		}
		out = append(out, pods.Items...)
	}
	return out, nil
}
