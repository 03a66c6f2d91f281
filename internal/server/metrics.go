package server

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var (
	joinRequests = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "k8s4r_server_join_requests_total", Help: "Requests of robots for a certificate, by path and by state of the response.",
	}, []string{"path", "state"})
	apiConnections = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "k8s4r_server_api_connections", Help: "Open connections to the join and log API, by whether the client has authenticated (authenticated, unauthenticated).",
	}, []string{"state"})
	refusedConnections = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "k8s4r_server_refused_api_connections_total", Help: "Connections to the join and log API that were refused, by the limit: in all (total), of an address, of an identity, or because the client did not authenticate in time (timeout).",
	}, []string{"reason"})
	logBytes = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "k8s4r_server_stored_log_bytes", Help: "Size of the stored logs of tasks. It is updated every 5 minutes, for a bucket every hour.",
	})
)

func init() { metrics.Registry.MustRegister(Metrics()...) }

// Metrics returns the server's metrics, without those of the gateway.
func Metrics() []prometheus.Collector {
	return []prometheus.Collector{joinRequests, apiConnections, refusedConnections, logBytes}
}
