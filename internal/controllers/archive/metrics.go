package archive

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"k8s4r.io/k8s4r/internal/archive"
)

var (
	recorded = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "k8s4r_archive_recorded_objects_total",
		Help: "Records of objects in the archive, by kind. An object is recorded once for each of its changes.",
	}, []string{"kind"})
	failures = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "k8s4r_archive_errors_total",
		Help: "Failed transactions of the archive. Each is retried.",
	})
	recordSeconds = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "k8s4r_archive_record_seconds",
		Help:    "Duration of a transaction of the archive.",
		Buckets: prometheus.ExponentialBuckets(0.001, 3, 10), // 1 ms to 20 s
	})
	lagSeconds = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "k8s4r_archive_lag_seconds",
		Help:    "Time from the end of an object until that end was recorded. The end of a task is a time of its robot's clock.",
		Buckets: prometheus.ExponentialBuckets(0.05, 3, 12), // 50 ms to two and a half hours
	})
	// Vectors without labels are exported only after they are set. Otherwise a manager without
	// an archive, or on standby, would report an unreachable archive.
	reachable = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "k8s4r_archive_reachable",
		Help: "1 if the last write to the archive succeeded, otherwise 0.",
	}, nil)
	sizeBytes = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "k8s4r_archive_size_bytes",
		Help: "Size of the archive at its last pruning, as counted for its retention.",
	}, nil)
)

func init() { metrics.Registry.MustRegister(Metrics()...) }

// Metrics returns the metrics of this controller.
func Metrics() []prometheus.Collector {
	return []prometheus.Collector{recorded, failures, recordSeconds, lagSeconds, reachable, sizeBytes}
}

// observeTransaction records the metrics of one transaction.
func observeTransaction(began, now time.Time, batch []archive.Object, err error) {
	if err != nil {
		failures.Inc()
		return
	}
	recordSeconds.Observe(now.Sub(began).Seconds())
	for _, o := range batch {
		recorded.WithLabelValues(string(o.Kind)).Inc()
		if !o.Finished.IsZero() {
			lagSeconds.Observe(max(0, now.Sub(o.Finished).Seconds()))
		}
	}
}
