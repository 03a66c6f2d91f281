package raycluster

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
)

func wantsSuspend(c *rayv1.RayCluster) bool { return c.Spec.Suspend != nil && *c.Spec.Suspend }

// suspending tells whether the Pods of a cluster go, whatever its spec says by now: a
// suspension that has begun is finished.
func suspending(o Options, c *rayv1.RayCluster) bool {
	if !o.Gates.StatusConditions {
		return wantsSuspend(c)
	}
	return meta.IsStatusConditionTrue(c.Status.Conditions, rayv1.RayClusterSuspending)
}

// suspended deletes the Pods of a cluster that is being suspended. It tells whether
// that is all there is to decide.
func (p *plan) suspended() bool {
	if suspending(p.opts, p.c) {
		if p.removeAll(p.Pods, rayv1.ReasonFailedDeleteAllPods, p.deletedAll("the cluster is suspended")) {
			p.why("suspend: delete all Pods")
		}
		p.headsLast()
		return true
	}
	// The status first says that it begins: a suspension that nobody could see was
	// forgotten when the spec changed back.
	return wantsSuspend(p.c) || p.opts.Gates.StatusConditions && meta.IsStatusConditionTrue(p.c.Status.Conditions, rayv1.RayClusterSuspended)
}

func (p *plan) deletedAll(why string) Event {
	return Event{corev1.EventTypeNormal, ReasonDeletedPod, actionDelete,
		fmt.Sprintf("Deleted all Pods of %s/%s: %s", p.c.Namespace, p.c.Name, why)}
}
