package controllers

import (
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	"k8s4r.io/k8s4r/internal/controllers/raycluster"
	"k8s4r.io/k8s4r/internal/controllers/raycluster/build"
	"k8s4r.io/k8s4r/internal/testkit"
)

// rayNetwork are the NetworkPolicies of clusters.
var rayNetwork = []rayCase{
	{"policies follow the spec, and go with their group", rayPolicies},
	{"a policy that a user changes or deletes is restored", rayRestoredPolicies},
	{"a foreign policy of the name is left alone, and the cluster continues when it is gone", rayForeignPolicy},
}

// allowsPort returns rules that allow connections to a port. The protocol is not set, as users
// write it.
func allowsPort(port int32) *rayv1.NetworkPolicyRules {
	return &rayv1.NetworkPolicyRules{IngressRules: []networkingv1.NetworkPolicyIngressRule{{
		Ports: []networkingv1.NetworkPolicyPort{{Port: ptr.To(intstr.FromInt32(port))}},
	}}}
}

func restricted(c *rayv1.RayCluster) {
	c.Spec.NetworkPolicy = &rayv1.NetworkPolicySpec{Mode: rayv1.DenyAllIngress, Head: allowsPort(8265)}
}

// policyIs waits until a policy has the spec that the cluster asks for.
func (s *space) policyIs(cluster, name string) *networkingv1.NetworkPolicy {
	s.Helper()
	is := &networkingv1.NetworkPolicy{}
	testkit.EventuallyNoError(s, waitTimeout, "policy "+name, func() error {
		var c rayv1.RayCluster
		if err := errors.Join(s.Get(s.Context(), s.key(cluster), &c), s.Get(s.Context(), s.key(name), is)); err != nil {
			return err
		}
		for _, want := range build.NetworkPolicies(&c) {
			if want.Name == name {
				return check(equality.Semantic.DeepEqual(want.Spec, is.Spec) && metav1.IsControlledBy(is, &c), "it is %+v, want %+v", is, want)
			}
		}
		return errors.New("the cluster has no such policy")
	})
	return is
}

// policyGone waits until a policy is deleted.
func (s *space) policyGone(name string) {
	s.Helper()
	testkit.EventuallyNoError(s, waitTimeout, "policy "+name+" is gone", func() error {
		err := s.Get(s.Context(), s.key(name), &networkingv1.NetworkPolicy{})
		return check(apierrors.IsNotFound(err), "get: %v", err)
	})
}

func rayPolicies(s *space) {
	s.kubelet()
	s.ray("c", restricted, rayGroup("a", 1), rayGroup("b", 1))
	s.awaitHead("c")
	for _, name := range []string{"c-head", "c-workers-a", "c-workers-b"} { // they exist before any Pod
		s.must(s.Get(s.Context(), s.key(name), &networkingv1.NetworkPolicy{}))
	}
	s.awaitRayEvent("CreatedNetworkPolicy", s.name+"/c-head") // and the others, in one series
	s.rayReady("c")
	was := s.policyIs("c", "c-head")
	s.rayRests("c")
	if now := s.policyIs("c", "c-head"); now.ResourceVersion != was.ResourceVersion || len(s.rayEvents("UpdatedNetworkPolicy")) > 0 {
		s.Errorf("the policy is written again without a change: %+v", now)
	}
	pods := podNames(s.rayNodes("c", ""))
	s.editRay("c", func(c *rayv1.RayCluster) {
		c.Spec.NetworkPolicy.Mode, c.Spec.NetworkPolicy.Worker = rayv1.DenyAll, allowsPort(9000)
		c.Spec.NetworkPolicy.WorkerGroups = []rayv1.NetworkPolicyGroupRules{{GroupName: "b"}}
	})
	for _, name := range []string{"c-head", "c-workers-a", "c-workers-b"} {
		s.policyIs("c", name)
	}
	s.awaitRayEvent("UpdatedNetworkPolicy", s.name+"/c-head")
	s.editRay("c", func(c *rayv1.RayCluster) { c.Spec.WorkerGroupSpecs = c.Spec.WorkerGroupSpecs[:1] })
	s.policyGone("c-workers-b")
	s.awaitRayEvent(raycluster.ReasonDeletedPolicy, s.name+"/c-workers-b")
	if left := s.rayNodes("c", "b"); len(left) > 0 {
		s.Errorf("the policy went before %v", podNames(left))
	}
	s.editRay("c", func(c *rayv1.RayCluster) { c.Spec.NetworkPolicy = nil })
	s.policyGone("c-head")
	s.policyGone("c-workers-a")
	if now := podNames(s.rayNodes("c", "")); slices.ContainsFunc(now, func(name string) bool { return !slices.Contains(pods, name) }) {
		s.Errorf("Pods changed from %v to %v", pods, now)
	}
}

func rayRestoredPolicies(s *space) {
	s.kubelet()
	s.ray("c", restricted, rayGroup("a", 1))
	s.rayReady("c")
	policy := s.policyIs("c", "c-head")
	policy.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{}}
	policy.Labels["team"] = "a"
	s.must(s.Update(s.Context(), policy))
	if now := s.policyIs("c", "c-head"); now.Labels["team"] != "a" {
		s.Errorf("a label of the user is gone: %v", now.Labels)
	}
	s.must(s.Delete(s.Context(), policy))
	testkit.EventuallyNoError(s, waitTimeout, "another policy", func() error {
		return check(s.policyIs("c", "c-head").UID != policy.UID, "it is the deleted one")
	})
}

func rayForeignPolicy(s *space) {
	s.kubelet()
	foreign := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "c-head", Labels: map[string]string{rayv1.LabelCluster: "c"}}}
	s.must(s.Create(s.Context(), foreign))
	s.ray("c", restricted)
	const text = "create networkpolicy c-head: an object of that name exists and is not controlled by this RayCluster"
	if e := s.awaitRayEvent(raycluster.ReasonPolicyNameCollision, text); e.Type != corev1.EventTypeWarning {
		s.Errorf("event %+v", e)
	}
	s.awaitRay("c", func(c *rayv1.RayCluster) error { return check(c.Status.Reason != "", "reason") })
	if pods := s.rayNodes("c", ""); len(pods) > 0 {
		s.Errorf("without its policy there are %v", podNames(pods))
	}
	was := foreign.DeepCopy()
	s.must(s.Get(s.Context(), client.ObjectKeyFromObject(foreign), foreign))
	if foreign.ResourceVersion != was.ResourceVersion {
		s.Errorf("the foreign policy was changed: %+v", foreign)
	}
	s.must(s.Delete(s.Context(), foreign))
	s.rayReady("c")
	s.policyIs("c", "c-head")
}
