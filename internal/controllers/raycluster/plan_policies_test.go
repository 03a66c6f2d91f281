package raycluster

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	"k8s4r.io/k8s4r/internal/controllers/raycluster/build"
)

// The policy of a removed group goes after its Pods, so that none of them is without a policy.
func TestPlan_DeletesPoliciesOfRemovedGroups(t *testing.T) {
	restricted := func(groups ...rayv1.WorkerGroupSpec) *rayv1.RayCluster {
		c := testCluster(groups...)
		c.Spec.NetworkPolicy = &rayv1.NetworkPolicySpec{}
		return c
	}
	both := build.NetworkPolicies(restricted(testGroup("g", 1, 1), testGroup("old", 1, 1)))
	names := func(policies []*networkingv1.NetworkPolicy) (all []string) {
		for _, p := range policies {
			all = append(all, p.Name)
		}
		return all
	}
	for _, row := range []struct {
		name    string
		cluster *rayv1.RayCluster
		pods    []*corev1.Pod
		want    []string
	}{
		{"nothing is removed", restricted(testGroup("g", 1, 1), testGroup("old", 1, 1)), nil, nil},
		{"the group is removed, and its Pod remains", restricted(testGroup("g", 1, 1)), []*corev1.Pod{head(), pod("p", "old", 0)}, nil},
		{"the group is removed, and its Pod terminates", restricted(testGroup("g", 1, 1)), []*corev1.Pod{head(), pod("p", "old", 0, ends(0))}, nil},
		{"the group is removed, and its Pods are gone", restricted(testGroup("g", 1, 1)), []*corev1.Pod{head(), pod("p", "g", 0)}, []string{both[2].Name}},
		{"no policies are wanted", testCluster(testGroup("g", 1, 1)), []*corev1.Pod{head(), pod("p", "g", 0)}, names(both)},
	} {
		got := Plan(t0, testOptions(), Input{Cluster: row.cluster, Pods: row.pods, Policies: both})
		if !slices.Equal(names(got.DeletePolicies), row.want) {
			t.Errorf("%s: %v are deleted, want %v", row.name, names(got.DeletePolicies), row.want)
		}
	}
}
