package raycluster

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	"k8s4r.io/k8s4r/internal/testkit/fakeapi"
)

// The deletion of a node requeues the clusters with Pods on it, and no others.
func TestOnNode_RequeuesClustersOfDeletedNode(t *testing.T) {
	on := func(name, cluster, node string) client.Object {
		p := pod(name, "g", 0)
		p.Labels[rayv1.LabelCluster], p.Spec.NodeName = cluster, node
		return p
	}
	api := fakeapi.NewBuilder(testScheme(t)).WithIndex(&corev1.Pod{}, indexNodes, byNode).
		WithObjects(on("a", "first", "gone"), on("b", "first", "gone"), on("c", "second", "gone"), on("d", "third", "node"), on("e", "third", "")).Build()
	c := newTestController(api, time.Now)
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer q.ShutDown()
	node := newNodeMetadata()
	node.ObjectMeta = metav1.ObjectMeta{Name: "gone"}
	c.onNode().Delete(t.Context(), event.DeleteEvent{Object: node}, q)
	if q.Len() != 2 {
		t.Fatalf("%d clusters are requeued, want 2", q.Len())
	}
	for range 2 {
		if got, _ := q.Get(); got.Name != "first" && got.Name != "second" {
			t.Errorf("%s is requeued", got)
		}
	}
}
