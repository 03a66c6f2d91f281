package raycluster

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
)

// The names and labels are KubeRay's, because users' dashboards query them.
var (
	provisionedDuration = newGauge("kuberay_cluster_provisioned_duration_seconds", "Seconds from the creation of a cluster until all of its Pods were ready.")
	clusterInfo         = newGauge("kuberay_cluster_info", "1 for each cluster; owner_kind is RayJob, RayService or None.", "owner_kind")
	provisionedIs       = newGauge("kuberay_cluster_condition_provisioned", "1 for the current state of the cluster; condition is true once all of its Pods have been ready.", "condition")
)

func newGauge(name, help string, more ...string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, append([]string{"name", "namespace", "uid"}, more...))
}

func init() { metrics.Registry.MustRegister(Metrics()...) }

// Metrics returns the collectors of this controller.
func Metrics() []prometheus.Collector {
	return []prometheus.Collector{provisionedDuration, clusterInfo, provisionedIs}
}

// recordMetrics sets the metrics of a cluster from its status.
func recordMetrics(c *rayv1.RayCluster) {
	name, namespace, uid := c.Name, c.Namespace, string(c.UID)
	clusterInfo.WithLabelValues(name, namespace, uid, firstNonEmpty(c.Labels[rayv1.LabelOriginatedFromKind], "None")).Set(1)
	p := meta.FindStatusCondition(c.Status.Conditions, rayv1.RayClusterProvisioned)
	is, isNot := "false", "true"
	if p != nil && p.Status == "True" {
		is, isNot = isNot, is
		provisionedDuration.WithLabelValues(name, namespace, uid).Set(p.LastTransitionTime.Sub(c.CreationTimestamp.Time).Seconds())
	}
	provisionedIs.WithLabelValues(name, namespace, uid, is).Set(1)
	provisionedIs.DeleteLabelValues(name, namespace, uid, isNot)
}

// dropMetrics removes the metrics of a deleted cluster.
func dropMetrics(k types.NamespacedName) {
	of := prometheus.Labels{"name": k.Name, "namespace": k.Namespace}
	for _, g := range []*prometheus.GaugeVec{provisionedDuration, clusterInfo, provisionedIs} {
		g.DeletePartialMatch(of)
	}
}
