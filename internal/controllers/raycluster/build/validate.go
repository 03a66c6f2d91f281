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
	"k8s4r.io/k8s4r/internal/platform/events"
)

// The reasons of Invalid, and of the events about it.
const (
	InvalidMetadata = "InvalidRayClusterMetadata"
	InvalidSpec     = "InvalidRayClusterSpec"
	InvalidStatus   = "InvalidRayClusterStatus"
)

// maxClusterName leaves room for the suffixes of names in labels.
const maxClusterName = 53

// Invalid is a reason why no Pods can be created for a cluster. From FindWarnings it is a warning.
type Invalid struct {
	// Reason is InvalidMetadata, InvalidSpec or InvalidStatus.
	Reason string
	// Message names the field and what to do.
	Message string
}

// Validate repeats the checks of admission, for objects that were stored before these existed, and
// adds those that only the controller can make. A cluster with findings gets no Pods, and the
// functions that build Pods rely on that.
func Validate(c *rayv1.RayCluster) []Invalid {
	f := &findings{}
	f.reason = InvalidMetadata
	f.checkMetadata(c)
	f.reason = InvalidSpec
	f.checkHead(c)
	names := map[string]bool{}
	for i := range c.Spec.WorkerGroupSpecs {
		g := &c.Spec.WorkerGroupSpecs[i]
		at := fmt.Sprintf("spec.workerGroupSpecs[%.64s]", g.GroupName)
		f.addIf(names[g.GroupName], "spec.workerGroupSpecs: several groups are named %s; give each group a unique name, because Pods are identified by it", g.GroupName)
		names[g.GroupName] = true
		f.checkGroup(c, g, at)
	}
	f.faultTolerance(c)
	f.checkAutoscaler(c)
	f.checkAuth(c)
	f.checkNetworkPolicy(c)
	f.checkUnsupported(c)
	f.reason = InvalidStatus
	suspending := meta.IsStatusConditionTrue(c.Status.Conditions, rayv1.RayClusterSuspending)
	suspended := meta.IsStatusConditionTrue(c.Status.Conditions, rayv1.RayClusterSuspended)
	f.addIf(suspending && suspended, "status.conditions: RayClusterSuspending and RayClusterSuspended must not both be True; set one of them to False")
	return f.all
}

// findings collects findings, each under the current reason.
type findings struct {
	reason string
	all    []Invalid
}

// The limits of findings: each is about a text or an item of a list of the user.
const (
	maxFindings     = 100
	maxFindingBytes = 1024
)

func (f *findings) addIf(wrong bool, format string, args ...any) {
	if wrong && len(f.all) < maxFindings {
		f.all = append(f.all, Invalid{f.reason, events.ClipText(fmt.Sprintf(format, args...), maxFindingBytes)})
	}
}

func (f *findings) checkMetadata(c *rayv1.RayCluster) {
	f.addIf(len(c.Name) > maxClusterName, "metadata.name: %s has %d characters; use at most %d", c.Name, len(c.Name), maxClusterName)
	f.addIf(len(validation.IsDNS1035Label(c.Name)) > 0 && len(c.Name) <= maxClusterName,
		"metadata.name: %s cannot be part of a Service name; use lower-case letters, digits and dashes, starting with a letter and not ending with a dash", c.Name)
}

func (f *findings) checkHead(c *rayv1.RayCluster) {
	f.checkNode(headNode(c), "spec.headGroupSpec")
}

// checkNode checks what applies to heads and workers alike.
func (f *findings) checkNode(n *node, at string) {
	f.addIf(len(n.template.Spec.Containers) == 0, "%s.template.spec.containers: must not be empty; the first container runs Ray", at)
	if len(n.resources) > 0 {
		for _, param := range []string{paramNumCPUs, paramNumGPUs, paramMemory, paramResources} {
			_, both := n.params[param]
			f.addIf(both, "%[1]s.rayStartParams[%[2]s]: %[1]s.resources is set, too; set only one of them", at, param)
		}
	}
	for name, v := range n.resources {
		q, err := resource.ParseQuantity(v)
		f.addIf(err != nil || q.Sign() < 0, "%s.resources[%s]: %q is not a quantity; use a number such as 4 or 2Gi", at, name, v)
	}
	for _, param := range []string{paramPort, paramDashboardPort, paramAgentPort, paramMetricsPort} {
		v, set := n.params[param]
		port, err := strconv.Atoi(v)
		f.addIf(set && (err != nil || port < 1 || port > 65535), "%s.rayStartParams[%s]: %q is not a port; use a number from 1 to 65535", at, param, v)
	}
	_, labels := n.params[paramLabels]
	f.addIf(labels, "%[1]s.rayStartParams[labels]: set %[1]s.labels instead, which also labels the Pods", at)
	for k, v := range n.labels {
		f.addIf(len(validation.IsQualifiedName(k)) > 0, "%s.labels: %q is not a valid label key; use letters, digits, dashes, dots and underscores, optionally after a DNS prefix and a slash", at, k)
		f.addIf(len(validation.IsValidLabelValue(v)) > 0, "%s.labels[%s]: %q is not a valid label value; use at most 63 letters, digits, dashes, dots and underscores", at, k, v)
	}
}

func (f *findings) checkGroup(c *rayv1.RayCluster, g *rayv1.WorkerGroupSpec, at string) {
	f.checkNode(workerNode(g), at)
	f.addIf(len(g.GroupName) > maxLabel || len(validation.IsDNS1123Subdomain(strings.ToLower(g.GroupName))) > 0, "%s.groupName: %q cannot be part of a Pod name; use at most 63 letters, digits and dashes", at, g.GroupName)
	f.addIf(g.GroupName == rayv1.HeadGroup, "%s.groupName: %s is reserved for the head; choose another name", at, rayv1.HeadGroup)
	f.addIf(!hasAutoscaler(c) && (g.MinReplicas == nil || g.MaxReplicas == nil), "%s: minReplicas and maxReplicas are required without an autoscaler; set both", at)
	least, most, now := derefOr(g.MinReplicas, 0), derefOr(g.MaxReplicas, 0), derefOr(g.Replicas, 0)
	f.addIf(least < 0, "%s.minReplicas: %d is negative; use 0 or more", at, least)
	f.addIf(most < 0, "%s.maxReplicas: %d is negative; use 0 or more", at, most)
	f.addIf(now < 0, "%s.replicas: %d is negative; use 0 or more", at, now)
	f.addIf(g.MaxReplicas != nil && most >= 0 && least > most, "%s.minReplicas: %d is greater than maxReplicas, which is %d; lower it, or raise maxReplicas", at, least, most)
	f.addIf(g.NumOfHosts < 0, "%s.numOfHosts: %d is less than 1; use 1 or more", at, g.NumOfHosts)
}

// versionNeeded returns the text about the version of Ray that a field needs.
func versionNeeded(c *rayv1.RayCluster, minor int) string {
	if c.Spec.RayVersion == "" {
		return fmt.Sprintf("needs Ray 2.%d or newer, but spec.rayVersion is empty; set it", minor)
	}
	return fmt.Sprintf("needs Ray 2.%d or newer, but spec.rayVersion is %s; use a newer image, or omit this field", minor, c.Spec.RayVersion)
}

func (f *findings) checkAuth(c *rayv1.RayCluster) {
	a := c.Spec.AuthOptions
	f.addIf(tokenAuth(c) && !kubernetesAuth(c) && !atLeast(c.Spec.RayVersion, 52), "spec.authOptions.mode: token %s", versionNeeded(c, 52))
	if !kubernetesAuth(c) {
		return
	}
	f.addIf(a.Mode != rayv1.AuthToken, "spec.authOptions.enableK8sTokenAuth: requires spec.authOptions.mode: token")
	f.addIf(!atLeast(c.Spec.RayVersion, 55), "spec.authOptions.enableK8sTokenAuth: %s", versionNeeded(c, 55))
	f.addIf(a.SecretName != nil && *a.SecretName != "", "spec.authOptions.secretName: cannot be combined with enableK8sTokenAuth, which needs no Secret; omit one of them")
}

// checkUnsupported rejects fields that this version does not implement, and an upgrade strategy for
// clusters of a RayJob or RayService, which decide on upgrades themselves.
func (f *findings) checkUnsupported(c *rayv1.RayCluster) {
	const unsupported = "not supported yet; omit it"
	f.addIf(c.Spec.TLSOptions != nil && c.Spec.TLSOptions.Enabled != nil && *c.Spec.TLSOptions.Enabled, "spec.tlsOptions: %s, and mount certificates in the Pod templates", unsupported)
	f.addIf(c.Spec.HistoryServerOptions != nil, "spec.historyServerOptions: %s, and add a collector to the Pod templates", unsupported)
	from := c.Labels[rayv1.LabelOriginatedFromKind]
	f.addIf(c.Spec.UpgradeStrategy != nil && slices.Contains([]string{"RayJob", "RayService"}, from), "spec.upgradeStrategy: the %s that created this cluster controls upgrades; omit it", from)
}
