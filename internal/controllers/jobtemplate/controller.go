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

// Name of the controller.
const Name = "jobtemplate"

// indexTemplate of Jobs is the name of the template that they were made from.
const indexTemplate = "metadata.createdByJobTemplate"

// gather is how long the comings and goings of Jobs are gathered: a flow makes many
// Jobs of one template at a time, and each would be a write of the whole list.
const gather = time.Second

// Controller writes which Jobs were made from each JobTemplate.
type Controller struct {
	client.Client
	// Concurrency is the number of templates that are worked on at a time.
	Concurrency int
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Add starts the controller with the manager.
func (c *Controller) Add(mgr ctrl.Manager) error {
	err := mgr.GetFieldIndexer().IndexField(context.Background(), &batchv1.Job{}, indexTemplate, func(o client.Object) []string {
		if name := Of(o); name != "" {
			return []string{name}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("index jobs by template: %w", err)
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named(Name).
		For(&flowv1.JobTemplate{}, builder.WithPredicates(predicate.Funcs{ // its spec says nothing of its Jobs
			UpdateFunc: func(event.UpdateEvent) bool { return false },
		})).
		Watches(&batchv1.Job{}, handler.Funcs{
			CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { wake(e.Object, q) },
			DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) { wake(e.Object, q) },
		}).
		WithOptions(controller.Options{MaxConcurrentReconciles: c.Concurrency}).
		Complete(c)
}

// Of is the name of the template that a Job was made from. Empty: none. The annotation
// has it in full, of a name with dots too (contract §3.11).
func Of(job client.Object) string {
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

func wake(job client.Object, q queue) {
	if name := Of(job); name != "" {
		q.AddAfter(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: job.GetNamespace(), Name: name}}, gather)
	}
}

// Reconcile writes the list of one template.
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
	names := Names(&jobs)
	if slices.Equal(names, t.Status.JobDependsOnList) {
		return reconcile.Result{}, nil
	}
	t.Status.JobDependsOnList = names
	return c.write(ctx, &t)
}

// write the status as it was decided on. Where somebody was faster it is decided anew.
func (c *Controller) write(ctx context.Context, t *flowv1.JobTemplate) (reconcile.Result, error) {
	err := c.Status().Update(ctx, t)
	switch {
	case apierrors.IsNotFound(err):
		return reconcile.Result{}, nil
	case apierrors.IsConflict(err):
		return reconcile.Result{RequeueAfter: gather}, nil
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("update status of template %s: %w", t.Name, err)
	}
	return reconcile.Result{}, nil
}

// Names of Jobs, sorted.
func Names(jobs *batchv1.JobList) []string {
	var out []string
	for i := range jobs.Items {
		out = append(out, jobs.Items[i].Name)
	}
	slices.Sort(out)
	return out
}
