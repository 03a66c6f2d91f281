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
	"k8s4r.io/k8s4r/internal/controllers/jobflow/probe"
	"k8s4r.io/k8s4r/internal/controllers/kit"
	"k8s4r.io/k8s4r/internal/core/naming"
)

// Index fields of the cache.
const (
	// fieldOwner indexes Jobs by the UID of their flow.
	fieldOwner = "metadata.controller.flow"
	// fieldTemplate indexes flows by the templates of their steps.
	fieldTemplate = "spec.flows.template"
	// fieldUsesOutputs is "true" for templates that refer to outputs.
	fieldUsesOutputs = "spec.mentions"
)

// onSpecChange ignores changes of a template's status. The status lists Jobs, and each
// change would reconcile all flows that use the template.
var onSpecChange = builder.WithPredicates(predicate.GenerationChangedPredicate{})

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Add starts the controller with the manager.
func (c *Controller) Add(mgr ctrl.Manager) error {
	c.expect = kit.NewExpectations(c.Now, mgr.GetLogger().WithName(Name))
	c.memory = newMemoryStore()
	c.requeue = make(chan event.GenericEvent, 1024)
	c.prober = probe.New(probe.Config{ListPods: c.listPods, OnChange: c.enqueueFlow})
	if err := mgr.Add(c.prober); err != nil {
		return fmt.Errorf("add the prober: %w", err)
	}
	if err := addIndices(mgr.GetFieldIndexer()); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named(Name).
		For(&flowv1.JobFlow{}).
		Watches(&batchv1.Job{}, c.onJob()).
		Watches(&robotv1.Job{}, c.onJob()).
		Watches(&flowv1.JobTemplate{}, c.onTemplate(Pods), onSpecChange).
		Watches(&robotv1.JobTemplate{}, c.onTemplate(Robots), onSpecChange).
		Watches(&corev1.Namespace{}, onNamespace(), builder.OnlyMetadata).
		WatchesRawSource(source.Channel(c.requeue, &handler.EnqueueRequestForObject{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: c.Concurrency}).
		Complete(c)
}

func addIndices(to client.FieldIndexer) error {
	add := func(o client.Object, field string, value client.IndexerFunc) error {
		if err := to.IndexField(context.Background(), o, field, value); err != nil {
			return fmt.Errorf("index %T by %s: %w", o, field, err)
		}
		return nil
	}
	for _, o := range []client.Object{&batchv1.Job{}, &robotv1.Job{}} {
		if err := add(o, fieldOwner, indexFlowUID); err != nil {
			return err
		}
	}
	for _, o := range []client.Object{&flowv1.JobTemplate{}, &robotv1.JobTemplate{}} {
		if err := add(o, fieldUsesOutputs, indexOutputReferences); err != nil {
			return err
		}
	}
	return add(&flowv1.JobFlow{}, fieldTemplate, indexTemplateKeys)
}

func indexFlowUID(o client.Object) []string {
	if _, id, ok := flowOwner(o); ok {
		return []string{string(id)}
	}
	return nil
}

// indexOutputReferences indexes templates that refer to outputs of steps.
func indexOutputReferences(o client.Object) []string {
	var spec any
	switch t := o.(type) {
	case *flowv1.JobTemplate:
		spec = t.Spec
	case *robotv1.JobTemplate:
		spec = t.Spec
	}
	if text, err := json.Marshal(spec); err == nil && strings.Contains(string(text), outputReferencePrefix) {
		return []string{"true"}
	}
	return nil
}

func indexTemplateKeys(o client.Object) []string {
	f, ok := o.(*flowv1.JobFlow)
	if !ok {
		return nil
	}
	var out []string
	for i := range f.Spec.Flows {
		out = append(out, templateKeyOf(&f.Spec.Flows[i]).String())
	}
	return out
}

// String returns the template as the index has it.
func (k TemplateKey) String() string { return string(k.Kind) + "/" + k.Name }

// onJob enqueues the flow that controls a Job and, when the Job is deleted, flows that are
// waiting for its name.
func (c *Controller) onJob() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { c.enqueueOwner(e.Object, q) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			if !equality.Semantic.DeepEqual(summarizeJob(e.ObjectOld), summarizeJob(e.ObjectNew)) {
				c.enqueueOwner(e.ObjectNew, q)
			}
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) { c.recordDeletedJob(e.Object, q) },
	}
}

// recordDeletedJob keeps the last seen state of a deleted Job. A Job that completed and
// was deleted at once has completed.
func (c *Controller) recordDeletedJob(o client.Object, q queue) {
	for _, k := range c.memory.releaseName(o.GetNamespace(), o.GetName()) {
		q.Add(reconcile.Request{NamespacedName: k})
	}
	k, id, ok := flowOwner(o)
	if !ok {
		return
	}
	c.expect.ObserveCreate(id, o.GetName()) // the cache will never show it
	c.memory.UpdateIfSameUID(k, id, func(m *memory) { m.deletedJobs[o.GetUID()] = summarizeJob(o) })
	c.enqueueOwner(o, q)
}

// summarizeJob returns the summary of a Job of either kind.
func summarizeJob(o client.Object) *Job {
	switch j := o.(type) {
	case *batchv1.Job:
		return summarizePodJob(j)
	case *robotv1.Job:
		return summarizeRobotJob(j)
	}
	return nil
}

// batchDelayPerStep is, for each step of a flow above largeFlow steps, the least time from one pass
// until an event starts the next, up to maxBatchDelay. A pass takes time in proportion to the steps;
// one per event would take quadratic time.
const (
	largeFlow         = 200
	batchDelayPerStep = 100 * time.Microsecond
	maxBatchDelay     = 100 * time.Millisecond
)

func (c *Controller) enqueueOwner(o client.Object, q queue) {
	k, _, ok := flowOwner(o)
	if !ok {
		return
	}
	if n, last := c.memory.lastPass(k); n > largeFlow {
		due := last.Add(min(time.Duration(n)*batchDelayPerStep, maxBatchDelay))
		q.AddAfter(reconcile.Request{NamespacedName: k}, due.Sub(c.Now())) // at once if due has passed
		return
	}
	q.Add(reconcile.Request{NamespacedName: k})
}

// onTemplate enqueues the flows that use a template: it may have been missing or invalid
// before.
func (c *Controller) onTemplate(kind Kind) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
		var flows flowv1.JobFlowList
		err := c.List(ctx, &flows, client.InNamespace(o.GetNamespace()),
			client.MatchingFields{fieldTemplate: TemplateKey{kind, o.GetName()}.String()}, client.UnsafeDisableDeepCopy)
		if err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "The flows of a template could not be listed", "template", o.GetName())
			return nil
		}
		var out []reconcile.Request
		for i := range flows.Items {
			k := client.ObjectKeyFromObject(&flows.Items[i])
			c.memory.clearRejections(k)
			out = append(out, reconcile.Request{NamespacedName: k})
		}
		return out
	})
}

// onNamespace deletes the metrics of a deleted namespace.
func onNamespace() handler.EventHandler {
	return handler.Funcs{
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, _ queue) { deleteCounts(e.Object.GetName()) },
	}
}

// enqueueFlow enqueues a flow whose probe results have changed.
func (c *Controller) enqueueFlow(k types.NamespacedName) {
	f := &flowv1.JobFlow{ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: k.Name}}
	c.requeue <- event.GenericEvent{Object: f}
}

// listPods reads the Pods of Jobs for probes and outputs. That is rare, so it does not
// justify a cache of all Pods of the cluster.
func (c *Controller) listPods(ctx context.Context, namespace string, jobs []probe.Job) ([]corev1.Pod, error) {
	var out []corev1.Pod
	for _, j := range jobs {
		var pods corev1.PodList
		if err := c.Live.List(ctx, &pods, client.InNamespace(namespace), client.MatchingLabels{batchv1.KeyJobName: naming.LabelValue(j.Name)}); err != nil {
			return nil, err
		}
		out = append(out, pods.Items...)
	}
	return out, nil
}
