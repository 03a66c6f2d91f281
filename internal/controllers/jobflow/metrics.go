package jobflow

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
)

// The names are Volcano's, and so is the label (contract §1, Metrics).
var (
	succeedCount = counter("volcano_jobflow_succeed_phase_count", "Flows that came to the phase Succeed.")
	failedCount  = counter("volcano_jobflow_failed_phase_count", "Flows that came to the phase Failed.")
)

const labelNamespace = "jobflow_namespace"

func counter(name, help string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{labelNamespace})
}

func init() { metrics.Registry.MustRegister(Metrics()...) }

// Metrics of this controller.
func Metrics() []prometheus.Collector { return []prometheus.Collector{succeedCount, failedCount} }

// count an end that was written.
func count(namespace string, ended flowv1.Phase) {
	switch ended {
	case flowv1.Succeed:
		succeedCount.WithLabelValues(namespace).Inc()
	case flowv1.Failed:
		failedCount.WithLabelValues(namespace).Inc()
	default:
	}
}

// dropCounts of a namespace that is gone.
func dropCounts(namespace string) {
	succeedCount.DeleteLabelValues(namespace)
	failedCount.DeleteLabelValues(namespace)
}
