package build

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
)

// The reasons of Invalid, and of the events about it.
const (
	InvalidMetadata = "InvalidRayClusterMetadata"
	InvalidSpec     = "InvalidRayClusterSpec"
	InvalidStatus   = "InvalidRayClusterStatus"
)

// maxClusterName leaves room for what is appended to the name in labels.
const maxClusterName = 53

// Invalid is why no Pods can be made of a cluster or, from Warn, what its author should know.
type Invalid struct {
	// Reason is one of InvalidMetadata, InvalidSpec and InvalidStatus.
	Reason string
	// Message names the field and the way out.
	Message string
}

// Validate judges what admission judges too, for objects that were stored before it did,
// and what only the controller sees. A cluster with findings gets no Pods: the functions
// that make them rely on it.
func Validate(c *rayv1.RayCluster) []Invalid {
	f := &findings{}
	f.reason = InvalidMetadata
	f.metadata(c)
	f.reason = InvalidSpec
	f.head(c)
	names := map[string]bool{}
	for i := range c.Spec.WorkerGroupSpecs {
		g := &c.Spec.WorkerGroupSpecs[i]
		at := "spec.workerGroupSpecs[" + g.GroupName + "]"
		f.check(names[g.GroupName], "spec.workerGroupSpecs: several groups are named %s, and Pods are told apart by it; give each its own", g.GroupName)
		names[g.GroupName] = true
		f.group(c, g, at)
	}
	f.faultTolerance(c)
	f.autoscaler(c)
	f.auth(c)
	f.later(c)
	f.reason = InvalidStatus
	suspending := meta.IsStatusConditionTrue(c.Status.Conditions, rayv1.RayClusterSuspending)
	suspended := meta.IsStatusConditionTrue(c.Status.Conditions, rayv1.RayClusterSuspended)
	f.check(suspending && suspended, "status.conditions: RayClusterSuspending and RayClusterSuspended are both True, which cannot be; set one of them to False")
	return f.all
}

// findings are collected under one reason after the other.
type findings struct {
	reason string
	all    []Invalid
}

func (f *findings) check(wrong bool, format string, args ...any) {
	if wrong {
		f.all = append(f.all, Invalid{f.reason, fmt.Sprintf(format, args...)})
	}
}

func (f *findings) metadata(c *rayv1.RayCluster) {
	f.check(len(c.Name) > maxClusterName, "metadata.name: %s has %d characters; use at most %d", c.Name, len(c.Name), maxClusterName)
	f.check(len(validation.IsDNS1035Label(c.Name)) > 0 && len(c.Name) <= maxClusterName,
		"metadata.name: %s cannot be part of the name of a Service; use lower-case letters, digits and dashes, a letter first and no dash last", c.Name)
}

func (f *findings) head(c *rayv1.RayCluster) {
	f.node(headNode(c), "spec.headGroupSpec")
}

// node is what holds for heads and workers alike.
func (f *findings) node(n *node, at string) {
	f.check(len(n.template.Spec.Containers) == 0, "%s.template.spec.containers: there is none; the first one is Ray", at)
	if len(n.resources) > 0 {
		for _, param := range []string{paramNumCPUs, paramNumGPUs, paramMemory, paramResources} {
			_, both := n.params[param]
			f.check(both, "%[1]s.rayStartParams[%[2]s]: %[1]s.resources says what Ray has; leave one of them out", at, param)
		}
	}
	for name, v := range n.resources {
		q, err := resource.ParseQuantity(v)
		f.check(err != nil || q.Sign() < 0, "%s.resources[%s]: %q is no quantity; write a number such as 4 or 2Gi", at, name, v)
	}
	for _, param := range []string{paramPort, paramDashboardPort, paramAgentPort, paramMetricsPort} {
		v, set := n.params[param]
		port, err := strconv.Atoi(v)
		f.check(set && (err != nil || port < 1 || port > 65535), "%s.rayStartParams[%s]: %q is no port; write a number from 1 to 65535", at, param, v)
	}
	_, labels := n.params[paramLabels]
	f.check(labels, "%[1]s.rayStartParams[labels]: write them into %[1]s.labels, so that the Pods have them too", at)
	for k, v := range n.labels {
		f.check(len(validation.IsQualifiedName(k)) > 0, "%s.labels: %q cannot be the key of a label; use letters, digits, dashes, dots and underscores, and a prefix that ends in / if need be", at, k)
		f.check(len(validation.IsValidLabelValue(v)) > 0, "%s.labels[%s]: %q cannot be the value of a label; use at most 63 letters, digits, dashes, dots and underscores", at, k, v)
	}
}

func (f *findings) group(c *rayv1.RayCluster, g *rayv1.WorkerGroupSpec, at string) {
	f.node(workerNode(g), at)
	f.check(len(g.GroupName) > maxLabel || len(validation.IsDNS1123Subdomain(strings.ToLower(g.GroupName))) > 0, "%s.groupName: %q cannot be part of the name of a Pod; use at most 63 letters, digits and dashes", at, g.GroupName)
	f.check(g.GroupName == rayv1.HeadGroup, "%s.groupName: %s is the group of the head; choose another name", at, rayv1.HeadGroup)
	f.check(!autoscaled(c) && (g.MinReplicas == nil || g.MaxReplicas == nil), "%s: minReplicas and maxReplicas must be set where no autoscaler is", at)
	least, most, now := value(g.MinReplicas, 0), value(g.MaxReplicas, 0), value(g.Replicas, 0)
	f.check(least < 0, "%s.minReplicas: %d is less than nothing; write 0 or more", at, least)
	f.check(most < 0, "%s.maxReplicas: %d is less than nothing; write 0 or more", at, most)
	f.check(now < 0, "%s.replicas: %d is less than nothing; write 0 or more", at, now)
	f.check(g.MaxReplicas != nil && most >= 0 && least > most, "%s.minReplicas: %d is more than maxReplicas, which are %d; lower it, or raise maxReplicas", at, least, most)
	f.check(g.NumOfHosts < 0, "%s.numOfHosts: %d is less than one; write 1 or more", at, g.NumOfHosts)
}

// versionNeeded says which Ray a field needs.
func versionNeeded(c *rayv1.RayCluster, minor int) string {
	if c.Spec.RayVersion == "" {
		return fmt.Sprintf("needs Ray 2.%d or newer, and spec.rayVersion does not say which there is; set it", minor)
	}
	return fmt.Sprintf("needs Ray 2.%d or newer, and spec.rayVersion is %s; use a newer image, or leave this out", minor, c.Spec.RayVersion)
}

func (f *findings) auth(c *rayv1.RayCluster) {
	a := c.Spec.AuthOptions
	f.check(tokenAuth(c) && !kubernetesAuth(c) && !atLeast(c.Spec.RayVersion, 52), "spec.authOptions.mode: token %s", versionNeeded(c, 52))
	if !kubernetesAuth(c) {
		return
	}
	f.check(a.Mode != rayv1.AuthToken, "spec.authOptions.enableK8sTokenAuth: it is a kind of token; write mode: token too")
	f.check(!atLeast(c.Spec.RayVersion, 55), "spec.authOptions.enableK8sTokenAuth: %s", versionNeeded(c, 55))
	f.check(a.SecretName != nil && *a.SecretName != "", "spec.authOptions.secretName: Kubernetes knows the tokens, so none is in a Secret; leave it out, or enableK8sTokenAuth")
}

// later is what the API has and this version does not do.
func (f *findings) later(c *rayv1.RayCluster) {
	const later = "is not there yet in this version of K8s4r; leave it out"
	f.check(c.Spec.NetworkPolicy != nil, "spec.networkPolicy: %s, and write a NetworkPolicy of your own", later)
	f.check(c.Spec.TLSOptions != nil && c.Spec.TLSOptions.Enabled != nil && *c.Spec.TLSOptions.Enabled, "spec.tlsOptions: %s, or mount certificates by the templates", later)
	f.check(c.Spec.HistoryServerOptions != nil, "spec.historyServerOptions: %s, or add a collector to the templates", later)
	from := c.Labels[rayv1.LabelOriginatedFromKind]
	f.check(c.Spec.UpgradeStrategy != nil && slices.Contains([]string{"RayJob", "RayService"}, from), "spec.upgradeStrategy: the %s that made this cluster decides on upgrades; leave it out", from)
}
