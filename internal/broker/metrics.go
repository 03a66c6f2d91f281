package broker

import "github.com/prometheus/client_golang/prometheus"

// metrics collects the Stats of a broker.
type metrics struct{ broker *Broker }

var (
	metricConnections = prometheus.NewDesc("k8s4r_broker_connections", "MQTT connections that are open.", nil, nil)
	metricSessions    = prometheus.NewDesc("k8s4r_broker_sessions", "MQTT sessions, connected or not.", nil, nil)
	metricRetained    = prometheus.NewDesc("k8s4r_broker_retained_messages", "Messages that the broker retains.", nil, nil)
	metricRefused     = prometheus.NewDesc("k8s4r_broker_refused_actions_total", "What the broker did not let through.", []string{"action", "reason"}, nil)
	metricSlowed      = prometheus.NewDesc("k8s4r_broker_throttled_messages_total", "Messages of robots that had to wait because they sent too many.", nil, nil)
	metricDropped     = prometheus.NewDesc("k8s4r_broker_dropped_messages_total", "Messages that a client did not take in time, and lost.", nil, nil)
)

// Metrics returns descriptions of the metrics of any broker. They cannot be collected.
func Metrics() []prometheus.Collector { return []prometheus.Collector{metrics{}} }

// Collector returns a Prometheus collector of the broker's Stats.
func (b *Broker) Collector() prometheus.Collector { return metrics{b} }

// Describe implements prometheus.Collector.
func (m metrics) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{metricConnections, metricSessions, metricRetained, metricRefused, metricSlowed, metricDropped} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (m metrics) Collect(to chan<- prometheus.Metric) {
	s := m.broker.Stats()
	gauge := func(d *prometheus.Desc, v int) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v))
	}
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	gauge(metricConnections, s.Connections)
	gauge(metricSessions, s.Sessions)
	gauge(metricRetained, s.Retained)
	counter(metricSlowed, s.Throttled)
	counter(metricDropped, s.Dropped)
	for a, n := range s.Refused {
		counter(metricRefused, n, a.Action, a.Reason)
	}
}
