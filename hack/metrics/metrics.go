// Package metricdoc knows the metrics of every program: it writes docs/metrics.md, and its
// tests keep their names, labels and help to one scheme. No program links it.
package metricdoc

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

	"k8s4r.io/k8s4r/internal/agent"
	"k8s4r.io/k8s4r/internal/bridge"
	"k8s4r.io/k8s4r/internal/broker"
	"k8s4r.io/k8s4r/internal/census"
	"k8s4r.io/k8s4r/internal/console"
	"k8s4r.io/k8s4r/internal/controllers/archive"
	"k8s4r.io/k8s4r/internal/controllers/jobflow"
	"k8s4r.io/k8s4r/internal/controllers/raycluster"
	"k8s4r.io/k8s4r/internal/controllers/task"
	"k8s4r.io/k8s4r/internal/server"
	"k8s4r.io/k8s4r/internal/wire"
)

// Metric is one that a program shows.
type Metric struct {
	Name, Help string
	// Type is counter, gauge or histogram.
	Type   string
	Labels []string
}

// Program and its metrics, by name.
type Program struct {
	Name    string
	Metrics []Metric
}

// Programs are all that show metrics of ours.
func Programs() ([]Program, error) {
	ofAgent, err := agentMetrics()
	if err != nil {
		return nil, fmt.Errorf("agent: %w", err)
	}
	return []Program{
		{"k8s4r-manager", described(census.Metrics(), task.Metrics(), archive.Metrics(), jobflow.Metrics(), raycluster.Metrics())},
		{"k8s4r-server", described(bridge.Metrics(), server.Metrics())},
		{"k8s4r-console", described(console.Metrics())},
		{"the broker of `k8s4r up`", described(broker.Metrics())},
		{"k8s4r-agent", ofAgent},
	}, nil
}

// described asks collectors what they will show, whether they have anything to show or not.
func described(groups ...[]prometheus.Collector) (all []Metric) {
	for _, c := range slices.Concat(groups...) {
		descriptions := make(chan *prometheus.Desc, 64)
		c.Describe(descriptions)
		close(descriptions)
		for d := range descriptions {
			m := parse(d.String())
			m.Type = typeOf(c, m.Name)
			all = append(all, m)
		}
	}
	slices.SortFunc(all, func(a, b Metric) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// description is how client_golang prints what it does not let anybody read.
var description = regexp.MustCompile(`^Desc\{fqName: "(.*)", help: "(.*)", constLabels: \{\}, variableLabels: \{(.*)\}\}$`)

func parse(text string) Metric {
	part := description.FindStringSubmatch(text)
	if part == nil {
		return Metric{Name: text} // which breaks every rule, so a test says so
	}
	m := Metric{Name: part[1], Help: part[2]}
	if part[3] != "" {
		m.Labels = strings.Split(part[3], ",")
	}
	return m
}

func typeOf(c prometheus.Collector, name string) string {
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

// agentMetrics reads what an agent writes of which all is known.
func agentMetrics() ([]Metric, error) {
	now := time.Now()
	var page bytes.Buffer
	agent.WriteMetrics(&page, agent.Health{
		Version: "v1", LastContact: &now, StartedAt: now, Troubles: map[string]int{"dropped dispatch": 1},
		Tasks: []agent.LiveTask{{State: agent.TaskRunning, Use: &wire.ResourceUse{}}},
	})
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(&page)
	if err != nil {
		return nil, err
	}
	var all []Metric
	for _, name := range slices.Sorted(maps.Keys(families)) {
		f := families[name]
		m := Metric{Name: name, Help: f.GetHelp(), Type: strings.ToLower(f.GetType().String())}
		for _, l := range f.GetMetric()[0].GetLabel() {
			m.Labels = append(m.Labels, l.GetName())
		}
		all = append(all, m)
	}
	return all, nil
}
