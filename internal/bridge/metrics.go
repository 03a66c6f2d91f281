package bridge

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics count what passes and, above all, what does not.
type metrics struct {
	received     *prometheus.CounterVec // by kind of topic
	sent         *prometheus.CounterVec // by kind of topic
	dropped      *prometheus.CounterVec // by kind of topic and reason
	illegalEdges *prometheus.CounterVec // by state and signal
	transitions  *prometheus.CounterVec // by state before and after
	taskWrites   *prometheus.CounterVec // by result
	robotWrites  *prometheus.CounterVec // by result
	coalesced    prometheus.Counter
	logBytes     prometheus.Counter
	usedCores    prometheus.Gauge
	usedMemory   prometheus.Gauge
	robots       prometheus.Gauge
	brokerUp     prometheus.Gauge
	uplinkLag    prometheus.Histogram
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		received:     counter("k8s4r_server_received_messages_total", "MQTT messages that the server took in.", "kind"),
		sent:         counter("k8s4r_server_sent_messages_total", "MQTT messages that the server handed to the broker.", "kind"),
		dropped:      counter("k8s4r_server_dropped_messages_total", "MQTT messages that had no effect.", "kind", "reason"),
		illegalEdges: counter("k8s4r_server_illegal_edges_total", "Reports that the task's state machine does not allow.", "state", "signal"),
		transitions:  counter("k8s4r_task_transitions_total", "Changes of a task's state that were written, by the states before and after.", "from", "to"),
		taskWrites:   counter("k8s4r_server_task_writes_total", "Writes of Task status.", "result"),
		robotWrites:  counter("k8s4r_server_robot_writes_total", "Writes of Robots and their status.", "result"),
		coalesced: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "k8s4r_server_coalesced_reports_total", Help: "Reports that shared the write of a later one.",
		}),
		logBytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "k8s4r_server_received_log_bytes_total", Help: "Output of tasks that robots have sent, repetitions included.",
		}),
		usedCores:  gauge("k8s4r_server_task_cpu_cores", "Cores that running tasks use together, as robots last said."),
		usedMemory: gauge("k8s4r_server_task_memory_bytes", "Memory that running tasks have together, as robots last said."),
		robots:     gauge("k8s4r_server_connected_robots", "Robots that are in contact, as their Robot objects say."),
		brokerUp:   gauge("k8s4r_server_broker_connected", "1 while this server speaks to the MQTT broker; one that stands by does not."),
		uplinkLag: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "k8s4r_server_uplink_lag_seconds",
			Help:    "Time from when a report of a task was heard until what it says was written.",
			Buckets: prometheus.ExponentialBuckets(0.005, 2, 14), // 5 ms to 40 s
		}),
	}
	if reg == nil {
		return m, nil
	}
	return m, errors.Join(
		register(reg, &m.received), register(reg, &m.sent), register(reg, &m.dropped), register(reg, &m.illegalEdges), register(reg, &m.transitions),
		register(reg, &m.taskWrites), register(reg, &m.robotWrites), register(reg, &m.coalesced), register(reg, &m.logBytes),
		register(reg, &m.usedCores), register(reg, &m.usedMemory), register(reg, &m.robots), register(reg, &m.brokerUp), register(reg, &m.uplinkLag),
	)
}

// Metrics are those that a server registers.
func Metrics() []prometheus.Collector {
	m, _ := newMetrics(nil) // fails only for a registry
	return []prometheus.Collector{
		m.received, m.sent, m.dropped, m.illegalEdges, m.transitions, m.taskWrites, m.robotWrites, m.coalesced, m.logBytes,
		m.usedCores, m.usedMemory, m.robots, m.brokerUp, m.uplinkLag,
	}
}

func counter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

func gauge(name, help string) prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
}

// register puts c into the registry, or takes over the one that stands there
// from an earlier server in the same program.
func register[C prometheus.Collector](reg prometheus.Registerer, c *C) error {
	err := reg.Register(*c)
	var there prometheus.AlreadyRegisteredError
	if errors.As(err, &there) {
		if old, ok := there.ExistingCollector.(C); ok {
			*c = old
			return nil
		}
	}
	return err
}

func result(err error) string {
	if err != nil {
		return "error"
	}
	return "ok"
}
