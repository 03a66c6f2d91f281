package raycluster

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
)

// queue is the work queue of clusters.
type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// clusterOf returns the cluster in the object's label, or the empty string.
func clusterOf(o client.Object) string { return o.GetLabels()[rayv1.LabelCluster] }

func byCluster(o client.Object) []string {
	if name := clusterOf(o); name != "" {
		return []string{name}
	}
	return nil
}

func wakeCluster(o client.Object, q queue) {
	if name := clusterOf(o); name != "" {
		q.Add(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: name}})
	}
}

// onPod returns a handler that requeues the cluster of a Pod. A delete event also ends the
// expectations for the Pod.
func (c *Controller) onPod() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { wakeCluster(e.Object, q) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) { wakeCluster(e.ObjectNew, q) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) {
			if owner := metav1.GetControllerOf(e.Object); owner != nil {
				c.expect.ObserveCreate(owner.UID, e.Object.GetName())
				c.expect.ObserveDelete(owner.UID, e.Object.GetUID())
			}
			wakeCluster(e.Object, q)
		},
	}
}

// onObject returns a handler that requeues the cluster of an object. A delete event clears the
// record in memory.ensured, so that the object is created again.
func (c *Controller) onObject(kind string) handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { wakeCluster(e.Object, q) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) { wakeCluster(e.ObjectNew, q) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) {
			k := types.NamespacedName{Namespace: e.Object.GetNamespace(), Name: clusterOf(e.Object)}
			c.memory.UpdateIfPresent(k, func(m *memory) { delete(m.ensured, objectKey(kind, e.Object.GetName())) })
			wakeCluster(e.Object, q)
		},
	}
}
