package main

import (
	"bytes"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"k8s4r.io/k8s4r/internal/broker"
	"k8s4r.io/k8s4r/internal/console"
	"k8s4r.io/k8s4r/internal/controllers/archive"
	"k8s4r.io/k8s4r/internal/controllers/jobflow"
	"k8s4r.io/k8s4r/internal/controllers/raycluster"
	"k8s4r.io/k8s4r/internal/controllers/retention"
	"k8s4r.io/k8s4r/internal/controllers/task"
	"k8s4r.io/k8s4r/internal/controllers/vcjob"
	"k8s4r.io/k8s4r/internal/manager/metrics"
	"k8s4r.io/k8s4r/internal/platform/certexpiry"
	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/agent"
	"k8s4r.io/k8s4r/internal/robot/agent/artifactcache"
	"k8s4r.io/k8s4r/internal/robot/agent/runner"
	"k8s4r.io/k8s4r/internal/scheduler"
	"k8s4r.io/k8s4r/internal/server"
	"k8s4r.io/k8s4r/internal/server/gateway"
)

// metric describes one metric that a program exposes.
type metric struct {
	Name, Help string
	// Type is counter, gauge or histogram.
	Type   string
	Labels []string
}

// program is a program with its metrics, sorted by name.
type program struct {
	Name    string
	Metrics []metric
}

// listPrograms returns all programs that expose metrics of K8s4r.
func listPrograms() ([]program, error) {
	ofAgent, err := readAgentMetrics()
	if err != nil {
		return nil, fmt.Errorf("agent: %w", err)
	}
	return []program{
		{"k8s4r-manager", describeMetrics(metrics.Metrics(), scheduler.Metrics(), task.Metrics(), archive.Metrics(), jobflow.Metrics(), raycluster.Metrics(), retention.Metrics(), vcjob.Metrics())},
		{"k8s4r-server", describeMetrics(gateway.Metrics(), server.Metrics(), certexpiry.Metrics())},
		{"k8s4r-console", describeMetrics(console.Metrics())},
		{"the broker of `k8s4r up`", describeMetrics(broker.Metrics())},
		{"the certificates of `k8s4r up`", describeMetrics(certexpiry.Metrics())},
		{"k8s4r-agent", ofAgent},
	}, nil
}

// describeMetrics returns the metrics of collectors, with and without samples.
func describeMetrics(groups ...[]prometheus.Collector) (all []metric) {
	for _, c := range slices.Concat(groups...) {
		descriptions := make(chan *prometheus.Desc, 64)
		c.Describe(descriptions)
		close(descriptions)
		for d := range descriptions {
			m := parseDescription(d.String())
			m.Type = findType(c, m.Name)
			all = append(all, m)
		}
	}
	slices.SortFunc(all, func(a, b metric) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// description matches the text of a prometheus.Desc, whose fields are private.
var description = regexp.MustCompile(`^Desc\{fqName: "(.*)", help: "(.*)", constLabels: \{\}, variableLabels: \{(.*)\}\}$`)

func parseDescription(text string) metric {
	part := description.FindStringSubmatch(text)
	if part == nil {
		return metric{Name: text} // breaks the naming rules, so a test reports it
	}
	m := metric{Name: part[1], Help: part[2]}
	if part[3] != "" {
		m.Labels = strings.Split(part[3], ",")
	}
	return m
}

func findType(c prometheus.Collector, name string) string {
	switch c.(type) {
	case *prometheus.CounterVec:
		return "counter"
	case *prometheus.GaugeVec, prometheus.Gauge:
		return "gauge"
	case *prometheus.HistogramVec, prometheus.Histogram:
		return "histogram"
	case prometheus.Counter:
		return "counter"
	}
	if strings.HasSuffix(name, "_total") { // a collector of our own
		return "counter"
	}
	return "gauge"
}

// readAgentMetrics parses the page of an agent that has a value for every metric.
func readAgentMetrics() ([]metric, error) {
	now := time.Now()
	var page bytes.Buffer
	agent.WriteMetrics(&page, agent.Health{
		Version: "v1", LastContact: &now, StartedAt: now, Errors: map[string]int{"dropped dispatch": 1},
		Tasks: []runner.LiveTask{{State: runner.TaskRunning, Usage: &wire.ResourceUsage{}}},
		Cache: &artifactcache.Usage{},
	})
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(&page)
	if err != nil {
		return nil, err
	}
	var all []metric
	for _, name := range slices.Sorted(maps.Keys(families)) {
		f := families[name]
		m := metric{Name: name, Help: f.GetHelp(), Type: strings.ToLower(f.GetType().String())}
		for _, l := range f.GetMetric()[0].GetLabel() {
			m.Labels = append(m.Labels, l.GetName())
		}
		all = append(all, m)
	}
	return all, nil
}
