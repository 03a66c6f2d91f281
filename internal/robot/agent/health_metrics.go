package agent

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"

	"k8s4r.io/k8s4r/internal/robot/agent/runner"
)

// WriteMetrics writes the metrics of an agent in the format of Prometheus. It uses no library,
// to keep the agent small.
func WriteMetrics(w io.Writer, h Health) {
	gauge := newGaugeWriter(w)
	const info = "k8s4r_agent_info"
	fmt.Fprintf(w, "# HELP %[1]s 1, with the version of the agent.\n# TYPE %[1]s gauge\n%[1]s{version=%[2]q} 1\n", info, h.Version)
	gauge("k8s4r_agent_healthy", "Whether the agent accepts tasks.", boolToFloat(h.Problem == ""))
	gauge("k8s4r_agent_connected", "Whether there is a connection to the MQTT broker.", boolToFloat(h.Connected))
	gauge("k8s4r_agent_registered", "Whether the robot is registered over this connection.", boolToFloat(h.Registered))
	if h.LastContact != nil {
		gauge("k8s4r_agent_last_acknowledged_heartbeat_timestamp_seconds", "When the agent sent the last heartbeat that the server acknowledged.", unixSeconds(*h.LastContact))
	}
	gauge("k8s4r_agent_start_timestamp_seconds", "When the agent started.", unixSeconds(h.StartedAt))
	gauge("k8s4r_agent_journal_bytes", "Size of the journal.", float64(h.JournalBytes))
	gauge("k8s4r_agent_pending_reports", "Reports that the server has not acknowledged.", float64(h.ReportsPending))
	if h.Cache != nil {
		gauge("k8s4r_agent_cache_bytes", "Size of the cache of artifacts.", float64(h.Cache.Bytes))
		gauge("k8s4r_agent_cache_files", "Files in the cache of artifacts.", float64(h.Cache.Files))
	}
	writeTaskMetrics(w, h)
	writeErrorMetrics(w, h.Errors)
}

// newGaugeWriter returns a function that writes one gauge.
func newGaugeWriter(w io.Writer) func(name, help string, value float64) {
	return func(name, help string, value float64) {
		fmt.Fprintf(w, "# HELP %[1]s %[2]s\n# TYPE %[1]s gauge\n%[1]s %[3]s\n", name, help, strconv.FormatFloat(value, 'f', -1, 64))
	}
}

// writeTaskMetrics writes nothing if the tasks are not known.
func writeTaskMetrics(w io.Writer, h Health) {
	if h.Problem != "" {
		return
	}
	count := map[string]int{runner.TaskStarting: 0, runner.TaskRunning: 0, runner.TaskRestarting: 0}
	var percent, bytes float64
	for _, t := range h.Tasks {
		count[t.State]++
		if t.Usage != nil {
			percent, bytes = percent+t.Usage.CPUPercent, bytes+float64(t.Usage.MemoryBytes)
		}
	}
	const name = "k8s4r_agent_tasks"
	fmt.Fprintf(w, "# HELP %[1]s Tasks that are starting or running, or wait for a restart.\n# TYPE %[1]s gauge\n", name)
	for _, state := range slices.Sorted(maps.Keys(count)) {
		fmt.Fprintf(w, "%s{state=%q} %d\n", name, state, count[state])
	}
	gauge := newGaugeWriter(w)
	gauge("k8s4r_agent_task_cpu_cores", "CPU cores that all tasks use, as of the last heartbeat.", percent/100)
	gauge("k8s4r_agent_task_memory_bytes", "Memory that all tasks use, as of the last heartbeat.", bytes)
}

func writeErrorMetrics(w io.Writer, errors map[string]int) {
	const name = "k8s4r_agent_errors_total"
	fmt.Fprintf(w, "# HELP %[1]s Messages that were dropped, and other errors.\n# TYPE %[1]s counter\n", name)
	for _, what := range slices.Sorted(maps.Keys(errors)) {
		fmt.Fprintf(w, "%s{type=%q} %d\n", name, what, errors[what])
	}
}

func boolToFloat(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

func unixSeconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }
