package retention

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AnnotationKeep of a finished object keeps it until it is removed. Its value is "true"; only
// "false" is the same as no annotation, so that a mistake deletes nothing.
const AnnotationKeep = "robot.k8s4r.io/keep"

// isExempt reports whether the retention never deletes an object: it is being deleted, kept by its
// annotation, or left to its controller or to a deployment tool. Such a tool would create it again,
// and it would run again.
func isExempt(o metav1.Object) bool {
	keep, annotated := o.GetAnnotations()[AnnotationKeep]
	return o.GetDeletionTimestamp() != nil || annotated && keep != "false" ||
		metav1.GetControllerOfNoCopy(o) != nil || isDeployed(o)
}

// isDeployed reports whether Argo CD, Flux or Helm has created the object.
func isDeployed(o metav1.Object) bool {
	for _, marks := range []map[string]string{o.GetLabels(), o.GetAnnotations()} {
		for key := range marks {
			if domain, _, ok := strings.Cut(key, "/"); ok && isDeploymentTool(domain) {
				return true
			}
		}
	}
	labels := o.GetLabels()
	_, isInstance := labels["app.kubernetes.io/instance"] // how Argo CD before version 3 tracks by default
	return isInstance || labels["app.kubernetes.io/managed-by"] == "Helm"
}

// isDeploymentTool reports whether labels and annotations with the prefix are those of a tool.
func isDeploymentTool(domain string) bool {
	switch domain {
	case "argocd.argoproj.io", "meta.helm.sh", "fluxcd.io":
		return true
	}
	return strings.HasSuffix(domain, ".fluxcd.io")
}
