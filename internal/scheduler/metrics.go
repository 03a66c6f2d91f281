package scheduler

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var (
	cycleSeconds = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "k8s4r_placement_cycle_seconds",
		Help:    "Duration of a placement cycle.",
		Buckets: prometheus.ExponentialBuckets(0.0001, 4, 8),
	})
	waitingTasks = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "k8s4r_placement_waiting_tasks",
		Help: "Existing tasks that wait for a robot.",
	})
)

func init() { metrics.Registry.MustRegister(Metrics()...) }

// Metrics returns the metrics of the scheduler.
func Metrics() []prometheus.Collector { return []prometheus.Collector{cycleSeconds, waitingTasks} }
