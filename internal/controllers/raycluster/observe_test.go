package raycluster

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	"k8s4r.io/k8s4r/internal/controllers/kit"
	"k8s4r.io/k8s4r/internal/testkit/fakeapi"
)

// The cost of a reconcile must not depend on the number of other clusters.
func TestObserveCluster_ListsOnlyItsPods(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, rayv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	cluster := &rayv1.RayCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "mine", UID: "u"}}
	objects := []client.Object{cluster}
	for _, name := range []string{"mine", "other", "another"} {
		for i := range 3 {
			objects = append(objects, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				Namespace: "ns", Name: fmt.Sprintf("%s-%d", name, i),
				Labels: map[string]string{rayv1.LabelCluster: name, rayv1.LabelNodeType: rayv1.NodeTypeWorker, rayv1.LabelGroup: "g"},
			}})
		}
	}
	lists, read := 0, 0
	reader := fakeapi.NewBuilder(scheme).WithObjects(objects...).
		WithIndex(&corev1.Pod{}, indexPods, byCluster).
		WithInterceptorFuncs(interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			err := c.List(ctx, list, opts...)
			if pods, ok := list.(*corev1.PodList); ok {
				lists, read = lists+1, read+len(pods.Items)
			}
			return err
		}}).Build()
	c := &Controller{Client: reader, Live: reader, own: reader, Now: time.Now, expect: kit.NewExpectations(time.Now, logr.Discard()), memory: kit.NewObjectMemory(newMemory)}
	if _, err := c.observeCluster(t.Context(), client.ObjectKeyFromObject(cluster)); err != nil {
		t.Fatal(err)
	}
	if lists != 1 || read != 3 {
		t.Errorf("%d lists of Pods read %d of them, want 1 and the 3 of this cluster", lists, read)
	}
}
