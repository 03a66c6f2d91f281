package raycluster

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	"k8s4r.io/k8s4r/internal/controllers/raycluster/build"
)

// isRetainedClaim reports whether an object is the claim that an earlier cluster of this name has
// left. Its author could mount it by a template, too, so using it gives no right away.
func isRetainedClaim(cluster *rayv1.RayCluster, o client.Object) bool {
	claim, is := o.(*corev1.PersistentVolumeClaim)
	return is && metav1.GetControllerOf(claim) == nil && clusterOf(claim) == cluster.Name
}

// reportStorageDrift records an event if the claim of the head's state differs from the spec, once
// for each difference. The claim is not changed: it holds the state.
func (c *Controller) reportStorageDrift(cluster *rayv1.RayCluster, is, want *corev1.PersistentVolumeClaim) {
	drift := build.DescribeStorageDrift(want, is)
	w := &Input{Cluster: cluster}
	if c.isNewMessage(w, ReasonStorageDrift, drift) && drift != "" {
		c.recordWarning(cluster, ReasonStorageDrift, actionValidate, "%s", fmt.Sprintf("persistentvolumeclaim %s/%s is not changed, but differs from spec.gcsFaultToleranceOptions.storage: %s", is.Namespace, is.Name, drift))
	}
}
