package gateway

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics counts messages and writes.
type metrics struct {
	received           *prometheus.CounterVec // by kind of topic
	sent               *prometheus.CounterVec // by kind of topic
	dropped            *prometheus.CounterVec // by kind of topic and reason
	illegalTransitions *prometheus.CounterVec // by state and signal
	repeatedReports    *prometheus.CounterVec // by state
	transitions        *prometheus.CounterVec // by state before and after
	taskWrites         *prometheus.CounterVec // by result
	robotWrites        *prometheus.CounterVec // by result
	sliceWrites        *prometheus.CounterVec // by result
	coalesced          prometheus.Counter
	logBytes           prometheus.Counter
	usedCores          prometheus.Gauge
	usedMemory         prometheus.Gauge
	robots             prometheus.Gauge
	brokerUp           prometheus.Gauge
	limitReached       *prometheus.CounterVec // by limit
	reportLag          prometheus.Histogram
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		received:           newCounter("k8s4r_server_received_messages_total", "MQTT messages that the server received.", "kind"),
		sent:               newCounter("k8s4r_server_sent_messages_total", "MQTT messages that the server queued for the broker.", "kind"),
		dropped:            newCounter("k8s4r_server_dropped_messages_total", "MQTT messages and reports that had no effect, by reason.", "kind", "reason"),
		illegalTransitions: newCounter("k8s4r_server_illegal_transitions_total", "Reports that the task's state machine does not allow.", "state", "signal"),
		repeatedReports:    newCounter("k8s4r_server_repeated_reports_total", "Reports of a start or end that was known already, by the state in the report. Robots repeat what is not acknowledged.", "state"),
		transitions:        newCounter("k8s4r_task_transitions_total", "Changes of a task's state that were written, by the states before and after.", "from", "to"),
		taskWrites:         newCounter("k8s4r_server_task_writes_total", "Writes of Task status.", "result"),
		robotWrites:        newCounter("k8s4r_server_robot_writes_total", "Writes of Robots and their status.", "result"),
		sliceWrites:        newCounter("k8s4r_server_heartbeat_slice_writes_total", "Writes of HeartbeatSlices.", "result"),
		limitReached:       newCounter("k8s4r_server_limit_reached_total", "Messages and writes of robots that were dropped or delayed because a limit was reached, by limit (docs/reference/mqtt.md).", "limit"),
		coalesced: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "k8s4r_server_coalesced_reports_total", Help: "Reports that shared the write of a later one.",
		}),
		logBytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "k8s4r_server_received_log_bytes_total", Help: "Bytes of task output that the server has received, including repeated pieces.",
		}),
		usedCores:  newGauge("k8s4r_server_task_cpu_cores", "Sum of the CPU cores that running tasks use, as robots last reported it."),
		usedMemory: newGauge("k8s4r_server_task_memory_bytes", "Sum of the memory that running tasks use, as robots last reported it."),
		robots:     newGauge("k8s4r_server_connected_robots", "Robots whose condition Connected is True."),
		brokerUp:   newGauge("k8s4r_server_broker_connected", "1 while this server is connected to the MQTT broker, 0 otherwise. Only the leader connects."),
		reportLag: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "k8s4r_server_report_lag_seconds",
			Help:    "Time from the receipt of a report about a task until it was written to the Task.",
			Buckets: prometheus.ExponentialBuckets(0.005, 2, 14), // 5 ms to 40 s
		}),
	}
	if reg == nil {
		return m, nil
	}
	return m, errors.Join(
		registerCollector(reg, &m.received), registerCollector(reg, &m.sent), registerCollector(reg, &m.dropped), registerCollector(reg, &m.illegalTransitions), registerCollector(reg, &m.transitions),
		registerCollector(reg, &m.taskWrites), registerCollector(reg, &m.robotWrites), registerCollector(reg, &m.coalesced), registerCollector(reg, &m.logBytes),
		registerCollector(reg, &m.usedCores), registerCollector(reg, &m.usedMemory), registerCollector(reg, &m.robots), registerCollector(reg, &m.brokerUp), registerCollector(reg, &m.reportLag),
		registerCollector(reg, &m.limitReached), registerCollector(reg, &m.repeatedReports), registerCollector(reg, &m.sliceWrites),
	)
}

// Metrics returns the metrics that a gateway registers.
func Metrics() []prometheus.Collector {
	m, _ := newMetrics(nil) // fails only for a registry
	return []prometheus.Collector{
		m.received, m.sent, m.dropped, m.illegalTransitions, m.transitions, m.taskWrites, m.robotWrites, m.coalesced, m.logBytes,
		m.usedCores, m.usedMemory, m.robots, m.brokerUp, m.reportLag, m.limitReached, m.repeatedReports, m.sliceWrites,
	}
}

func newCounter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

func newGauge(name, help string) prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
}

// registerCollector registers c, or takes over the registered one of an earlier gateway
// in the same program.
func registerCollector[C prometheus.Collector](reg prometheus.Registerer, c *C) error {
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

func resultLabel(err error) string {
	if err != nil {
		return "error"
	}
	return "ok"
}
