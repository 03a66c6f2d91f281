package raycluster

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	"k8s4r.io/k8s4r/internal/controllers/raycluster/build"
)

// unwatchedRequeueInterval is the requeue interval while the cluster waits for an object that is not
// watched: for the service account of the user, or for the end of a foreign object.
const unwatchedRequeueInterval = 10 * time.Second

// addFinalizer plans the finalizer of a cluster whose keys must be removed from Redis, before any
// Pod can write a key. It reports whether the plan ends there.
func (p *plan) addFinalizer() bool {
	if !build.NeedsRedisCleanup(&p.opts.Build, p.c) || slices.Contains(p.c.Finalizers, rayv1.FinalizerRedisCleanup) {
		return false
	}
	p.addReason("add the finalizer for the Redis cleanup")
	p.out.AddFinalizer = rayv1.FinalizerRedisCleanup
	return true
}

// planObjects lists the objects that Pods depend on. It reports whether to continue with the Pods.
func (p *plan) planObjects() bool {
	if p.MissingServiceAccount {
		p.out.Problem = fmt.Sprintf("the service account %s of the head, which the autoscaler uses, does not exist; create it, or leave spec.headGroupSpec.template.spec.serviceAccountName empty", build.UserServiceAccount(p.c))
		p.out.Events = append(p.out.Events, Event{corev1.EventTypeWarning, ReasonAccountNotFound, actionValidate, p.out.Problem})
		p.requeueAt(p.now.Add(unwatchedRequeueInterval))
		return false
	}
	s := &p.opts.Build
	for _, o := range []client.Object{
		build.ServiceAccount(p.c), build.BuildAutoscalerRole(p.c), build.RoleBinding(p.c), build.HeadIngress(p.c), build.AuthSecret(p.c, p.Token),
		build.HeadService(s, p.c), build.HeadlessService(s, p.c), build.ServeService(s, p.c),
	} {
		if !reflect.ValueOf(o).IsNil() {
			p.out.Ensure = append(p.out.Ensure, o)
		}
	}
	p.planPolicies()
	if claim := build.StorageClaim(p.c); claim != nil {
		p.out.Ensure = append(p.out.Ensure, claim)
	}
	return true
}

// planPolicies lists the NetworkPolicies, which must exist before the Pods that they select. That
// of a removed group is deleted after its last Pod.
func (p *plan) planPolicies() {
	wanted := map[string]bool{}
	for _, policy := range build.NetworkPolicies(p.c) {
		wanted[policy.Name] = true
		p.out.Ensure = append(p.out.Ensure, policy)
	}
	for _, policy := range p.Policies {
		if wanted[policy.Name] || len(wanted) > 0 && p.hasPodsOf(policy.Labels[rayv1.LabelGroup]) {
			continue
		}
		p.addReason("delete NetworkPolicy %s, which the spec no longer asks for", policy.Name)
		p.out.DeletePolicies = append(p.out.DeletePolicies, policy)
	}
}

// hasPodsOf reports whether a Pod of the group exists.
func (p *plan) hasPodsOf(group string) bool {
	return slices.ContainsFunc(p.Pods, func(pod *corev1.Pod) bool { return pod.Labels[rayv1.LabelGroup] == group })
}
