package raycluster

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
)

// indexNodes is the cache index of Pods by the node that they run on.
const indexNodes = "raycluster.pods.node"

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

func byNode(o client.Object) []string {
	if pod, ok := o.(*corev1.Pod); ok && pod.Spec.NodeName != "" {
		return []string{pod.Spec.NodeName}
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

// onObject returns a handler that requeues the cluster of an object. If the object is deleted or its
// spec changes, the record in memory.ensured is cleared, so that it is created or updated again.
func (c *Controller) onObject(kind string) handler.EventHandler {
	forget := func(o client.Object) {
		k := types.NamespacedName{Namespace: o.GetNamespace(), Name: clusterOf(o)}
		c.memory.UpdateIfPresent(k, func(m *memory) {
			delete(m.ensured, objectKey(kind, o.GetName()))
			m.forgotten++
		})
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { wakeCluster(e.Object, q) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			if e.ObjectNew.GetGeneration() != e.ObjectOld.GetGeneration() { // always 0 of Services and claims
				forget(e.ObjectNew)
			}
			wakeCluster(e.ObjectNew, q)
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) {
			forget(e.Object)
			wakeCluster(e.Object, q)
		},
	}
}

// newNodeMetadata returns an empty Node of which only the metadata is read.
func newNodeMetadata() *metav1.PartialObjectMetadata {
	node := &metav1.PartialObjectMetadata{}
	node.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
	return node
}

// onNode returns a handler that requeues the clusters with Pods on a deleted node: the end of those
// Pods can no longer be reported.
func (c *Controller) onNode() handler.EventHandler {
	return handler.Funcs{DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
		var list corev1.PodList
		err := c.own.List(ctx, &list, client.MatchingFields{indexNodes: e.Object.GetName()}, client.UnsafeDisableDeepCopy)
		if err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "List the Pods of a deleted node", "node", e.Object.GetName())
		}
		for i := range list.Items {
			wakeCluster(&list.Items[i], q)
		}
	}}
}
