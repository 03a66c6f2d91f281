package task

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var (
	cycleSeconds = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "k8s4r_placement_cycle_seconds",
		Help:    "How long one placement cycle took.",
		Buckets: prometheus.ExponentialBuckets(0.0001, 4, 8),
	})
	waitingTasks = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "k8s4r_placement_waiting_tasks",
		Help: "Tasks that exist and wait for a robot.",
	})
	illegalEdges = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "k8s4r_manager_illegal_edges_total",
		Help: "Signals that a task's state does not accept, by state and signal.",
	}, []string{"state", "signal"})
	// The server counts its own edges under the same name.
	transitions = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "k8s4r_task_transitions_total",
		Help: "Changes of a task's state that were written, by the states before and after.",
	}, []string{"from", "to"})
)

func init() { metrics.Registry.MustRegister(Metrics()...) }

// Metrics of this controller and its placement.
func Metrics() []prometheus.Collector {
	return []prometheus.Collector{cycleSeconds, waitingTasks, illegalEdges, transitions}
}
