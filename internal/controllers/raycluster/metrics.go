package raycluster

import (
	"time"

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

// provisionedTime returns when the condition Provisioned last changed. The time is zero if there is no
// such condition, and in whole seconds if the status was read from the API server.
func provisionedTime(s *rayv1.RayClusterStatus) time.Time {
	if p := meta.FindStatusCondition(s.Conditions, rayv1.RayClusterProvisioned); p != nil {
		return p.LastTransitionTime.Time
	}
	return time.Time{}
}

// recordMetrics sets the metrics of a cluster from its status. If provisionedAt, which has fractions
// of a second, is not of the transition in the status, the time in the status counts.
func recordMetrics(c *rayv1.RayCluster, provisionedAt time.Time) {
	name, namespace, uid := c.Name, c.Namespace, string(c.UID)
	clusterInfo.WithLabelValues(name, namespace, uid, firstNonEmpty(c.Labels[rayv1.LabelOriginatedFromKind], "None")).Set(1)
	is, isNot := "false", "true"
	if meta.IsStatusConditionTrue(c.Status.Conditions, rayv1.RayClusterProvisioned) {
		is, isNot = isNot, is
		if at := provisionedTime(&c.Status); !provisionedAt.Truncate(time.Second).Equal(at) {
			provisionedAt = at
		}
		provisionedDuration.WithLabelValues(name, namespace, uid).Set(provisionedAt.Sub(c.CreationTimestamp.Time).Seconds())
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
