package raycluster

import (
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
