package build

import (
	"strings"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
)

// What names may hold at the most.
const (
	maxPrefix = 50 // what is left of a Pod's name before its role
	maxCheck  = 50 // the names of checkName
	maxLabel  = 63
)

// HeadNamePrefix begins the name of a head Pod.
func HeadNamePrefix(c *rayv1.RayCluster) string { return prefix(c.Name) + "-head-" }

// WorkerNamePrefix begins the name of a worker Pod of the group.
func WorkerNamePrefix(c *rayv1.RayCluster, g *rayv1.WorkerGroupSpec) string {
	return prefix(c.Name+"-"+g.GroupName) + "-worker-"
}

// ReplicaName names a replica of several Pods, in a label. The suffix tells the replicas
// of a cluster apart, so that the name of the group may be cut.
func ReplicaName(g *rayv1.WorkerGroupSpec, suffix string) string {
	group := g.GroupName[:min(len(g.GroupName), maxLabel-1-len(suffix))]
	return strings.TrimRight(group, "-._") + "-" + suffix
}

// prefix is cut so that something can be appended: no part of a name ends in a dot.
func prefix(s string) string {
	return strings.TrimRight(strings.ToLower(s[:min(len(s), maxPrefix)]), ".")
}

// last keeps the end of s.
func last(s string, n int) string { return s[max(0, len(s)-n):] }

// checkName keeps the last 50 characters, and puts an r where the first is no
// letter: Services and their like must begin with one.
func checkName(s string) string {
	s = last(s, maxCheck)
	if first := rune(s[0]); unicode.IsDigit(first) || unicode.IsPunct(first) {
		return "r" + s[1:]
	}
	return s
}

// HeadServiceName names the head's Service.
func HeadServiceName(c *rayv1.RayCluster) string {
	if s := c.Spec.HeadGroupSpec.HeadService; s != nil && s.Name != "" {
		return s.Name
	}
	return c.Name + "-head-svc"
}

// ServeServiceName names the Service of Ray Serve.
func ServeServiceName(c *rayv1.RayCluster) string { return c.Name + "-serve-svc" }

// HeadlessServiceName names the Service of the workers.
func HeadlessServiceName(c *rayv1.RayCluster) string { return c.Name + "-headless" }

// AuthSecretName names the Secret of the token.
func AuthSecretName(c *rayv1.RayCluster) string {
	if a := c.Spec.AuthOptions; a != nil && a.SecretName != nil && *a.SecretName != "" {
		return *a.SecretName
	}
	return checkName(c.Name)
}

// RedisCleanupJobName names the Job that removes the cluster's keys from Redis.
func RedisCleanupJobName(c *rayv1.RayCluster) string {
	return strings.TrimLeft(last(c.Name+"-redis-cleanup", maxLabel), "-.")
}

// HeadIngressName names the Ingress of the dashboard.
func HeadIngressName(c *rayv1.RayCluster) string { return checkName(c.Name + "-head-ingress") }

// fqdn is the head's Service by its full name.
func fqdn(s *Settings, c *rayv1.RayCluster) string {
	return HeadServiceName(c) + "." + c.Namespace + ".svc." + s.ClusterDomain
}

// owned is the metadata of an object that goes with its cluster.
func owned(c *rayv1.RayCluster, name string, labels map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace:       c.Namespace,
		Name:            name,
		Labels:          labels,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(c, rayv1.GroupVersion.WithKind("RayCluster"))},
	}
}

// ofCluster labels what is neither head nor worker.
func ofCluster(c *rayv1.RayCluster) map[string]string {
	return map[string]string{
		rayv1.LabelCluster:   c.Name,
		rayv1.LabelAppName:   rayv1.AppName,
		rayv1.LabelCreatedBy: rayv1.CreatedBy,
	}
}
