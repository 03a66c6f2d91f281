package build

import (
	"strings"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
)

// Limits of names, in bytes.
const (
	maxPrefix = 50 // of a Pod's name before its role
	maxCheck  = 50 // of names from checkName
	maxLabel  = 63
)

// HeadNamePrefix returns the prefix of the name of a head Pod.
func HeadNamePrefix(c *rayv1.RayCluster) string { return namePrefix(c.Name) + "-head-" }

// WorkerNamePrefix returns the prefix of the names of the group's worker Pods.
func WorkerNamePrefix(c *rayv1.RayCluster, g *rayv1.WorkerGroupSpec) string {
	return namePrefix(c.Name+"-"+g.GroupName) + "-worker-"
}

// ReplicaName returns the name of a multi-host replica, for a label. The suffix is unique in the
// cluster, so the group name may be truncated.
func ReplicaName(g *rayv1.WorkerGroupSpec, suffix string) string {
	group := g.GroupName[:min(len(g.GroupName), maxLabel-1-len(suffix))]
	return strings.TrimRight(group, "-._") + "-" + suffix
}

// namePrefix truncates s so that a suffix can be appended: no part of a name may end in a dot.
func namePrefix(s string) string {
	return strings.TrimRight(strings.ToLower(s[:min(len(s), maxPrefix)]), ".")
}

// lastBytes returns the last n bytes of s.
func lastBytes(s string, n int) string { return s[max(0, len(s)-n):] }

// checkName returns the last 50 characters of s. If the first is not a letter, it is replaced by r:
// names of Services must start with a letter.
func checkName(s string) string {
	s = lastBytes(s, maxCheck)
	if first := rune(s[0]); unicode.IsDigit(first) || unicode.IsPunct(first) {
		return "r" + s[1:]
	}
	return s
}

// HeadServiceName returns the name of the head's Service.
func HeadServiceName(c *rayv1.RayCluster) string {
	if s := c.Spec.HeadGroupSpec.HeadService; s != nil && s.Name != "" {
		return s.Name
	}
	return c.Name + "-head-svc"
}

// ServeServiceName returns the name of the Service of Ray Serve.
func ServeServiceName(c *rayv1.RayCluster) string { return c.Name + "-serve-svc" }

// HeadlessServiceName returns the name of the Service of multi-host workers.
func HeadlessServiceName(c *rayv1.RayCluster) string { return c.Name + "-headless" }

// AuthSecretName returns the name of the Secret with the token.
func AuthSecretName(c *rayv1.RayCluster) string {
	if a := c.Spec.AuthOptions; a != nil && a.SecretName != nil && *a.SecretName != "" {
		return *a.SecretName
	}
	return checkName(c.Name)
}

// RedisCleanupJobName returns the name of the Job that removes the cluster's keys from Redis.
func RedisCleanupJobName(c *rayv1.RayCluster) string {
	return strings.TrimLeft(lastBytes(c.Name+"-redis-cleanup", maxLabel), "-.")
}

// HeadIngressName returns the name of the Ingress of the dashboard.
func HeadIngressName(c *rayv1.RayCluster) string { return checkName(c.Name + "-head-ingress") }

// StorageClaimName returns the name of the claim that is created for the head's state.
func StorageClaimName(c *rayv1.RayCluster) string { return c.Name + "-gcs-pvc" }

// headFQDN returns the full DNS name of the head's Service.
func headFQDN(s *Settings, c *rayv1.RayCluster) string {
	return HeadServiceName(c) + "." + c.Namespace + ".svc." + s.ClusterDomain
}

// ownedMeta returns the metadata of an object that is deleted with its cluster.
func ownedMeta(c *rayv1.RayCluster, name string, labels map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace:       c.Namespace,
		Name:            name,
		Labels:          labels,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(c, rayv1.GroupVersion.WithKind("RayCluster"))},
	}
}

// ofCluster returns the labels of objects other than head and worker Pods.
func ofCluster(c *rayv1.RayCluster) map[string]string {
	return map[string]string{
		rayv1.LabelCluster:   c.Name,
		rayv1.LabelAppName:   rayv1.AppName,
		rayv1.LabelCreatedBy: rayv1.CreatedBy,
	}
}
