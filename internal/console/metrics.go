package console

import (
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/prometheus/client_golang/prometheus"

	"k8s4r.io/k8s4r/internal/platform/connlimit"
)

// metrics are the metrics of one console.
type metrics struct {
	requests *prometheus.CounterVec // by operation and by ok, refused or failed
	took     *prometheus.HistogramVec
	readers  prometheus.Gauge
	sent     prometheus.Counter
	resyncs  prometheus.Counter
	// refused are connections, by reason.
	refused *prometheus.CounterVec
}

func newMetrics() *metrics {
	return &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "k8s4r_console_requests_total", Help: "Completed requests to the console's API.",
		}, []string{"endpoint", "result"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "k8s4r_console_request_duration_seconds", Help: "Duration of requests, without event streams and logs.",
			Buckets: []float64{0.001, 0.005, 0.02, 0.1, 0.5, 2, 10},
		}, []string{"endpoint"}),
		readers: prometheus.NewGauge(prometheus.GaugeOpts{Name: "k8s4r_console_event_readers", Help: "Clients that are connected to the event stream."}),
		sent:    prometheus.NewCounter(prometheus.CounterOpts{Name: "k8s4r_console_events_sent_total", Help: "Events sent to clients, counted once per client."}),
		resyncs: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "k8s4r_console_resyncs_total", Help: "Resync events sent to clients, which then load their lists again: after a restart of the console, because the client was too slow, or because a watch was interrupted.",
		}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "k8s4r_console_refused_connections_total", Help: "Connections to the console that were closed, or not counted for a user, because of a limit.",
		}, []string{"reason"}),
	}
}

func (m *metrics) listCollectors() []prometheus.Collector {
	return []prometheus.Collector{m.requests, m.took, m.readers, m.sent, m.resyncs, m.refused}
}

func (m *metrics) countRefusedConnection(reason connlimit.Reason) {
	m.refused.WithLabelValues(string(reason)).Inc()
}

// Metrics returns the collectors of a console for the documentation. They can be described but
// not collected.
func Metrics() []prometheus.Collector { return newMetrics().listCollectors() }

// streams are the operations whose responses have no fixed end.
var streams = map[string]bool{"events": true, "task-log": true, "pod-log": true}

// countRequest is a middleware that counts and times requests.
func (m *metrics) countRequest(c huma.Context, next func(huma.Context)) {
	began := time.Now()
	next(c)
	id := c.Operation().OperationID
	m.requests.WithLabelValues(id, outcomeLabel(c.Status())).Inc()
	if !streams[id] {
		m.took.WithLabelValues(id).Observe(time.Since(began).Seconds())
	}
}

// outcomeLabel maps an HTTP status code to a label value.
func outcomeLabel(code int) string {
	switch {
	case code >= 500:
		return "failed"
	case code >= 400:
		return "refused"
	}
	return "ok"
}
