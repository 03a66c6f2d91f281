package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var (
	tasks  = newGauge("k8s4r_manager_tasks", "Number of tasks, by state.", "state")
	jobs   = newGauge("k8s4r_manager_jobs", "Number of jobs, by state.", "state")
	flows  = newGauge("k8s4r_manager_flows", "Number of JobFlows, by phase.", "phase")
	robots = newGauge("k8s4r_manager_robots", "Number of robots, by phase.", "phase")

	attempts = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "k8s4r_manager_task_attempts_total",
		Help: "Ended attempts of tasks, by outcome.",
	}, []string{"outcome"})
	startSeconds = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "k8s4r_manager_task_start_seconds",
		Help:    "Time from the creation of a task until its first attempt was reported running.",
		Buckets: prometheus.ExponentialBuckets(0.05, 3, 12), // 50 ms to two and a half hours
	})
)

func newGauge(name, help, label string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{label})
}

func init() { metrics.Registry.MustRegister(Metrics()...) }

// Metrics returns the collectors of this package.
func Metrics() []prometheus.Collector {
	return []prometheus.Collector{tasks, jobs, flows, robots, attempts, startSeconds}
}
