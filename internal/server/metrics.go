package server

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var (
	joinRequests = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "k8s4r_server_join_requests_total", Help: "Requests of robots for a certificate, by path and by how they ended.",
	}, []string{"path", "state"})
	logBytes = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "k8s4r_server_stored_log_bytes", Help: "Size of the logs of tasks that are kept, as of a few minutes ago; in a bucket, as of an hour ago.",
	})
)

func init() { metrics.Registry.MustRegister(Metrics()...) }

// Metrics returns the server's metrics, without those of the gateway.
func Metrics() []prometheus.Collector { return []prometheus.Collector{joinRequests, logBytes} }
