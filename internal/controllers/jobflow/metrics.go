package jobflow

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
)

// Names and label are Volcano's.
var (
	succeedCount = newCounter("volcano_jobflow_succeed_phase_count", "Flows that reached the phase Succeed.")
	failedCount  = newCounter("volcano_jobflow_failed_phase_count", "Flows that reached the phase Failed.")
)

const labelNamespace = "jobflow_namespace"

func newCounter(name, help string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{labelNamespace})
}

func init() { metrics.Registry.MustRegister(Metrics()...) }

// Metrics returns the metrics of this controller.
func Metrics() []prometheus.Collector { return []prometheus.Collector{succeedCount, failedCount} }

// countEnd counts a flow that has succeeded or failed.
func countEnd(namespace string, ended flowv1.Phase) {
	switch ended {
	case flowv1.Succeed:
		succeedCount.WithLabelValues(namespace).Inc()
	case flowv1.Failed:
		failedCount.WithLabelValues(namespace).Inc()
	default:
	}
}

// deleteCounts deletes the counts of a deleted namespace.
func deleteCounts(namespace string) {
	succeedCount.DeleteLabelValues(namespace)
	failedCount.DeleteLabelValues(namespace)
}
