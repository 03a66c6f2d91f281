package jobtemplate

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
)

// Name is the name of the controller.
const Name = "jobtemplate"

// indexTemplate is the index field of Jobs by the template that they were created from.
const indexTemplate = "metadata.createdByJobTemplate"

// batchDelay batches created and deleted Jobs: a flow creates many Jobs of one template at
// once, and each write contains the whole list.
const batchDelay = time.Second

// Controller lists the Jobs that were created from each JobTemplate in its status.
type Controller struct {
	client.Client
	// Concurrency is the number of templates that are reconciled concurrently.
	Concurrency int
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Add starts the controller with the manager.
func (c *Controller) Add(mgr ctrl.Manager) error {
	err := mgr.GetFieldIndexer().IndexField(context.Background(), &batchv1.Job{}, indexTemplate, func(o client.Object) []string {
		if name := TemplateOf(o); name != "" {
			return []string{name}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("index jobs by template: %w", err)
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named(Name).
		For(&flowv1.JobTemplate{}, builder.WithPredicates(predicate.Funcs{ // the list does not depend on the spec
			UpdateFunc: func(event.UpdateEvent) bool { return false },
		})).
		Watches(&batchv1.Job{}, handler.Funcs{
			CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { enqueueTemplate(e.Object, q) },
			DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) { enqueueTemplate(e.Object, q) },
		}).
		WithOptions(controller.Options{MaxConcurrentReconciles: c.Concurrency}).
		Complete(c)
}

// TemplateOf returns the name of the template that a Job was created from, or "". The
// annotation holds the full name even if it is too long for a label.
func TemplateOf(job client.Object) string {
	from := job.GetAnnotations()[flowv1.KeyCreatedByJobTemplate]
	if from == "" {
		from = job.GetLabels()[flowv1.KeyCreatedByJobTemplate]
	}
	name, ok := strings.CutPrefix(from, job.GetNamespace()+".")
	if !ok {
		return ""
	}
	return name
}

func enqueueTemplate(job client.Object, q queue) {
	if name := TemplateOf(job); name != "" {
		q.AddAfter(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: job.GetNamespace(), Name: name}}, batchDelay)
	}
}

// Reconcile updates the list of one template.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var t flowv1.JobTemplate
	if err := c.Get(ctx, req.NamespacedName, &t); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	var jobs batchv1.JobList
	err := c.List(ctx, &jobs, client.InNamespace(t.Namespace), client.MatchingFields{indexTemplate: t.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("list jobs of template %s: %w", t.Name, err)
	}
	names := JobNames(&jobs)
	if slices.Equal(names, t.Status.JobDependsOnList) {
		return reconcile.Result{}, nil
	}
	t.Status.JobDependsOnList = names
	return c.writeStatus(ctx, &t)
}

// writeStatus writes the status. After a conflict the template is reconciled again.
func (c *Controller) writeStatus(ctx context.Context, t *flowv1.JobTemplate) (reconcile.Result, error) {
	err := c.Status().Update(ctx, t)
	switch {
	case apierrors.IsNotFound(err):
		return reconcile.Result{}, nil
	case apierrors.IsConflict(err):
		return reconcile.Result{RequeueAfter: batchDelay}, nil
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("update status of template %s: %w", t.Name, err)
	}
	return reconcile.Result{}, nil
}

// JobNames returns the names of Jobs, sorted.
func JobNames(jobs *batchv1.JobList) []string {
	var out []string
	for i := range jobs.Items {
		out = append(out, jobs.Items[i].Name)
	}
	slices.Sort(out)
	return out
}
