package raycluster

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
)

func shouldSuspend(c *rayv1.RayCluster) bool { return c.Spec.Suspend != nil && *c.Spec.Suspend }

// isSuspending reports whether the Pods of a cluster must go. A suspension that has begun is
// completed even if the spec changes back.
func isSuspending(o Options, c *rayv1.RayCluster) bool {
	if !o.Gates.StatusConditions {
		return shouldSuspend(c)
	}
	return meta.IsStatusConditionTrue(c.Status.Conditions, rayv1.RayClusterSuspending)
}

// planSuspension deletes the Pods of a cluster that is being suspended. It reports whether the plan
// ends there.
func (p *plan) planSuspension() bool {
	if isSuspending(p.opts, p.c) {
		if p.removeAll(p.Pods, rayv1.ReasonFailedDeleteAllPods, p.newDeletedAllEvent("the cluster is suspended")) {
			p.addReason("suspend: delete all Pods")
		}
		p.orderHeadsLast()
		return true
	}
	// Pods are deleted only after the status has the condition Suspending: otherwise a suspension
	// would be forgotten if the spec changed back.
	return shouldSuspend(p.c) || p.opts.Gates.StatusConditions && meta.IsStatusConditionTrue(p.c.Status.Conditions, rayv1.RayClusterSuspended)
}

func (p *plan) newDeletedAllEvent(why string) Event {
	return Event{corev1.EventTypeNormal, ReasonDeletedPod, actionDelete,
		fmt.Sprintf("Deleted all Pods of %s/%s: %s", p.c.Namespace, p.c.Name, why)}
}
