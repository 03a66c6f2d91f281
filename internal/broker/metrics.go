package broker

import "github.com/prometheus/client_golang/prometheus"

// metrics collects the Stats of a broker.
type metrics struct{ broker *Broker }

var (
	metricConnections = prometheus.NewDesc("k8s4r_broker_connections", "Open MQTT connections.", nil, nil)
	metricSessions    = prometheus.NewDesc("k8s4r_broker_sessions", "MQTT sessions, connected or not.", nil, nil)
	metricRetained    = prometheus.NewDesc("k8s4r_broker_retained_messages", "Retained messages.", nil, nil)
	metricRefused     = prometheus.NewDesc("k8s4r_broker_refused_actions_total", "Actions of clients that the broker has refused, by action and reason.", []string{"action", "reason"}, nil)
	metricThrottled   = prometheus.NewDesc("k8s4r_broker_throttled_messages_total", "Messages of robots that were delayed because the robot exceeded its rate limit.", nil, nil)
	metricDropped     = prometheus.NewDesc("k8s4r_broker_dropped_messages_total", "Messages that were dropped because the queue of their receiver was full.", nil, nil)
	metricPostponed   = prometheus.NewDesc("k8s4r_broker_postponed_connections_total", "Connections of robots that were asked to come back later, because many robots connected at the same time.", nil, nil)
)

// Metrics returns descriptions of the metrics of any broker. They cannot be collected.
func Metrics() []prometheus.Collector { return []prometheus.Collector{metrics{}} }

// Collector returns a Prometheus collector of the broker's Stats.
func (b *Broker) Collector() prometheus.Collector { return metrics{b} }

// Describe implements prometheus.Collector.
func (m metrics) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{metricConnections, metricSessions, metricRetained, metricRefused, metricThrottled, metricDropped, metricPostponed} {
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
	counter(metricThrottled, s.Throttled)
	counter(metricDropped, s.Dropped)
	counter(metricPostponed, s.Postponed)
	for a, n := range s.Refused {
		counter(metricRefused, n, a.Action, a.Reason)
	}
}
