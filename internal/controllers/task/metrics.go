package task

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var (
	illegalTransitions = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "k8s4r_manager_illegal_transitions_total",
		Help: "Signals that were dropped because the state of the task does not accept them, by state and signal.",
	}, []string{"state", "signal"})
	// The server counts its own transitions under the same name.
	transitions = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "k8s4r_task_transitions_total",
		Help: "Changes of a task's state that were written, by the states before and after.",
	}, []string{"from", "to"})
)

func init() { metrics.Registry.MustRegister(Metrics()...) }

// Metrics returns the metrics of this controller.
func Metrics() []prometheus.Collector {
	return []prometheus.Collector{illegalTransitions, transitions}
}
