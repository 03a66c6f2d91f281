package vcjob

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	busv1 "k8s4r.io/k8s4r/api/bus/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
)

// queue holds the Jobs to reconcile.
type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

func wakeJob(q queue, namespace, name string) {
	q.Add(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}})
}

// onPod enqueues the Job that controls a Pod, and clears the expectations of a deleted
// Pod.
func (c *Controller) onPod() handler.EventHandler {
	wake := func(o client.Object, q queue) {
		if owner := metav1.GetControllerOf(o); owner != nil && owner.Kind == "Job" && owner.APIVersion == batchv1.GroupVersion.String() {
			wakeJob(q, o.GetNamespace(), owner.Name)
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { wake(e.Object, q) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) { wake(e.ObjectNew, q) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) {
			c.expect.ForgetOwner(e.Object.GetUID())
			if owner := metav1.GetControllerOf(e.Object); owner != nil {
				c.expect.ObserveCreate(owner.UID, e.Object.GetName())
			}
			wake(e.Object, q)
		},
	}
}

// onCommand enqueues the Job that a Command names.
func onCommand() handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
		var all []reconcile.Request
		for _, name := range targetJobNames(o) {
			all = append(all, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: name}})
		}
		return all
	})
}

// targetJobNames returns the name of the Job that a Command targets, for the cache index. Commands for other kinds
// are ignored.
func targetJobNames(o client.Object) []string {
	t := o.(*busv1.Command).TargetObject
	if t == nil || t.Kind != "Job" || t.APIVersion != batchv1.GroupVersion.String() {
		return nil
	}
	return []string{t.Name}
}

// onFlow enqueues the Jobs whose end a JobFlow has just recorded: a Job may wait for that
// to be deleted.
func onFlow() handler.EventHandler {
	wake := func(f *flowv1.JobFlow, but map[string]string, q queue) {
		for name, uid := range recordedEnds(f) {
			if had, seen := but[name]; !seen || had != uid {
				wakeJob(q, f.Namespace, name)
			}
		}
	}
	return handler.Funcs{
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			wake(e.ObjectNew.(*flowv1.JobFlow), recordedEnds(e.ObjectOld.(*flowv1.JobFlow)), q)
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) {
			f := e.Object.(*flowv1.JobFlow)
			for i := range f.Spec.Flows {
				wakeJob(q, f.Namespace, f.Name+"-"+f.Spec.Flows[i].Name)
			}
		},
	}
}

// recordedEnds returns the UIDs of Jobs whose end a JobFlow has recorded, by name.
func recordedEnds(f *flowv1.JobFlow) map[string]string {
	all := map[string]string{}
	for i := range f.Status.JobStatusList {
		if j := &f.Status.JobStatusList[i]; flowv1.HasEnded(j.State) {
			all[j.Name] = j.UID
		}
	}
	return all
}

// onClaim enqueues the Jobs that mount a new claim.
func (c *Controller) onClaim() handler.EventHandler {
	return handler.Funcs{CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) {
		var jobs batchv1.JobList
		err := c.List(ctx, &jobs, client.InNamespace(e.Object.GetNamespace()), client.MatchingFields{indexClaims: e.Object.GetName()})
		if err != nil {
			return // the cache is shutting down
		}
		for i := range jobs.Items {
			wakeJob(q, jobs.Items[i].Namespace, jobs.Items[i].Name)
		}
	}}
}
