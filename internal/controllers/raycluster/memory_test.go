package raycluster

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	"k8s4r.io/k8s4r/internal/testkit/fakeapi"
)

// Groups that are renamed again and again do not fill the memory.
func TestObserveCluster_ForgetsRemovedGroups(t *testing.T) {
	cluster := testCluster(testGroup("g", 1, 1))
	api := fakeapi.NewBuilder(testScheme(t)).WithObjects(cluster, pod("a", "g", 0), pod("b", "renamed", 0)).
		WithIndex(&corev1.Pod{}, indexPods, byCluster).WithIndex(&networkingv1.NetworkPolicy{}, indexPolicies, byCluster).Build()
	k := newTestController(api, func() time.Time { return t0 })
	k.updateMemory(cluster, func(m *memory) {
		for _, group := range []string{rayv1.HeadGroup, "g", "old"} {
			m.pastNames[slot{group, 1}], m.retries[slot{group, 1}] = slotNames{names: map[string]bool{"x": true}}, 1
		}
	})
	if _, err := k.observeCluster(t.Context(), client.ObjectKeyFromObject(cluster)); err != nil {
		t.Fatal(err)
	}
	k.updateMemory(cluster, func(m *memory) {
		for _, remembered := range [][]slot{slices.Collect(maps.Keys(m.pastNames)), slices.Collect(maps.Keys(m.retries))} {
			groups := map[string]bool{}
			for _, s := range remembered {
				groups[s.group] = true
			}
			if !maps.Equal(groups, map[string]bool{rayv1.HeadGroup: true, "g": true}) {
				t.Errorf("remembered are %v", remembered)
			}
		}
	})
}

// An object that is deleted while a pass looks at it is created by the next pass.
func TestEnsureOne_RemembersNoDeletedObject(t *testing.T) {
	cluster := testCluster(testGroup("g", 1, 1))
	var k *Controller
	duringGet := func() {}
	api := fakeapi.NewBuilder(testScheme(t)).WithObjects(cluster).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, api client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
			err := api.Get(ctx, key, o, options...)
			duringGet()
			return err
		},
	}).Build()
	k = newTestController(api, func() time.Time { return t0 })
	want := &corev1.Service{ObjectMeta: metav1.ObjectMeta{
		Namespace: cluster.Namespace, Name: "s", Labels: map[string]string{rayv1.LabelCluster: cluster.Name},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(cluster, rayv1.GroupVersion.WithKind("RayCluster"))},
	}}
	ensure := func() {
		t.Helper()
		if err := k.ensureOne(t.Context(), cluster, want.DeepCopy()); err != nil {
			t.Fatal(err)
		}
	}
	forget := func() {
		wakes := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		k.onObject("Service").Delete(t.Context(), event.DeleteEvent{Object: want}, wakes)
	}
	ensure()
	forget() // so that the next pass reads it
	duringGet = func() {
		duringGet = func() {}
		if err := api.Delete(t.Context(), want.DeepCopy()); err != nil {
			t.Error(err)
		}
		forget()
	}
	ensure()
	ensure()
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(want), want.DeepCopy()); err != nil {
		t.Errorf("the deleted object: %v", err)
	}
}
