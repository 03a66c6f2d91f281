package retention

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var deleted = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "k8s4r_retention_deleted_objects_total",
	Help: "Finished objects that were deleted, by kind (job, flow, vcjob) and the limit that they have reached (age, count).",
}, []string{"kind", "limit"})

func init() { metrics.Registry.MustRegister(Metrics()...) }

// Metrics returns the metrics of this controller.
func Metrics() []prometheus.Collector { return []prometheus.Collector{deleted} }
