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
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		received:     counter("k8s4r_mqtt_received_total", "MQTT messages that the server took in.", "kind"),
		sent:         counter("k8s4r_mqtt_sent_total", "MQTT messages that the server handed to the broker.", "kind"),
		dropped:      counter("k8s4r_mqtt_dropped_total", "MQTT messages that had no effect.", "kind", "reason"),
		illegalEdges: counter("k8s4r_report_illegal_edges_total", "Reports that the task's state machine does not allow.", "state", "signal"),
		transitions:  counter("k8s4r_task_transitions_total", "Changes of a task's state that were written, by the states before and after.", "from", "to"),
		taskWrites:   counter("k8s4r_task_status_writes_total", "Writes of Task status.", "result"),
		robotWrites:  counter("k8s4r_robot_writes_total", "Writes of Robots and their status.", "result"),
		coalesced: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "k8s4r_task_reports_coalesced_total", Help: "Reports that shared the write of a later one.",
		}),
		logBytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "k8s4r_log_received_bytes_total", Help: "Output of tasks that robots have sent, repetitions included.",
		}),
		usedCores:  gauge("k8s4r_tasks_cpu_cores", "Cores that running tasks use together, as robots last said."),
		usedMemory: gauge("k8s4r_tasks_memory_bytes", "Memory that running tasks have together, as robots last said."),
	}
	if reg == nil {
		return m, nil
	}
	return m, errors.Join(
		register(reg, &m.received), register(reg, &m.sent), register(reg, &m.dropped), register(reg, &m.illegalEdges), register(reg, &m.transitions),
		register(reg, &m.taskWrites), register(reg, &m.robotWrites), register(reg, &m.coalesced), register(reg, &m.logBytes),
		register(reg, &m.usedCores), register(reg, &m.usedMemory),
	)
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
