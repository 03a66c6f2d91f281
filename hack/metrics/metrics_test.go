package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

func metricsByName(t *testing.T) map[string]metric {
	t.Helper()
	programs, err := listPrograms()
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]metric{}
	for _, p := range programs {
		if len(p.Metrics) == 0 {
			t.Errorf("%s has no metrics", p.Name)
		}
		for _, m := range p.Metrics {
			if other, twice := byName[m.Name]; twice && (other.Help != m.Help || other.Type != m.Type || !slices.Equal(other.Labels, m.Labels)) {
				t.Errorf("%s means two things: %v and %v", m.Name, other, m)
			}
			byName[m.Name] = m
		}
	}
	return byName
}

var (
	scheme = regexp.MustCompile(`^k8s4r_(manager|placement|task|archive|retention|server|console|broker|agent|certificate)(_[a-z][a-z0-9]*)+$`)
	// labels lists the allowed labels: their values do not depend on names of robots, tasks or jobs.
	labels = []string{"action", "certificate", "endpoint", "from", "kind", "limit", "outcome", "path", "phase", "reason", "result", "signal", "state", "to", "type", "version"}
	// foreign holds the metrics of Volcano and KubeRay that we keep, with their labels.
	foreign = map[string][]string{
		"volcano_jobflow_succeed_phase_count":                         {"jobflow_namespace"},
		"volcano_jobflow_failed_phase_count":                          {"jobflow_namespace"},
		"volcano_job_completed_phase_count":                           {"job_name", "queue_name"},
		"volcano_job_failed_phase_count":                              {"job_name", "queue_name"},
		"volcano_controller_job_to_pod_creation_latency_milliseconds": nil,
		"kuberay_cluster_info":                                        {"name", "namespace", "uid", "owner_kind"},
		"kuberay_cluster_condition_provisioned":                       {"name", "namespace", "uid", "condition"},
		"kuberay_cluster_provisioned_duration_seconds":                {"name", "namespace", "uid"},
	}
	// notBase matches units that are not base units of Prometheus.
	notBase = regexp.MustCompile(`_(ms|millis|milliseconds|minutes|hours|percent|kb|mb|kilobytes|megabytes|mib)(_|$)`)
)

func TestMetricNames_FollowScheme(t *testing.T) {
	for name, m := range metricsByName(t) {
		if want, ok := foreign[name]; ok {
			if !slices.Equal(want, m.Labels) {
				t.Errorf("%s has labels %v, want %v", name, m.Labels, want)
			}
			continue
		}
		if !scheme.MatchString(name) {
			t.Errorf("%s is not k8s4r_<subsystem>_<what>_<unit>", name)
		}
		if notBase.MatchString(name) {
			t.Errorf("%s is not in a base unit", name)
		}
		if (m.Type == "counter") != strings.HasSuffix(name, "_total") {
			t.Errorf("%s is a %s; counters, and nothing else, end with _total", name, m.Type)
		}
		if m.Type == "histogram" && !strings.HasSuffix(name, "_seconds") && !strings.HasSuffix(name, "_bytes") {
			t.Errorf("%s is a histogram without a unit", name)
		}
		if !strings.HasSuffix(m.Help, ".") || len(m.Help) < 15 {
			t.Errorf("%s: the help text must be a sentence: %q", name, m.Help)
		}
		for _, l := range m.Labels {
			if !slices.Contains(labels, l) {
				t.Errorf("%s has the label %s, which is not one of those with few values: %v", name, l, labels)
			}
		}
	}
	for name := range foreign {
		if _, ok := metricsByName(t)[name]; !ok {
			t.Errorf("%s is missing", name)
		}
	}
}

// TestRegisteredMetrics_AreListed compares the registry that the programs serve with the list.
func TestRegisteredMetrics_AreListed(t *testing.T) {
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	known, ours := metricsByName(t), 0
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "k8s4r_") {
			continue
		}
		ours++
		if m, ok := known[f.GetName()]; !ok || m.Type != strings.ToLower(f.GetType().String()) || m.Help != f.GetHelp() {
			t.Errorf("%s %s is listed as %+v", f.GetType(), f.GetName(), m)
		}
		problems, err := promlint.NewWithMetricFamilies([]*dto.MetricFamily{f}).Lint()
		if err != nil || len(problems) > 0 {
			t.Errorf("%s: %v, %v", f.GetName(), problems, err)
		}
	}
	if ours < 5 {
		t.Errorf("only %d metrics of ours are registered", ours)
	}
}

// TestMetricNames_InSourcesAreListed looks for metric names in the sources. A metric that
// listPrograms does not collect would be checked by no other test.
func TestMetricNames_InSourcesAreListed(t *testing.T) {
	known, found := metricsByName(t), 0
	literal := regexp.MustCompile(`"(k8s4r_[a-z0-9_]+)"`)
	for _, root := range []string{"../../internal", "../../standalone"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for _, name := range literal.FindAllStringSubmatch(string(text), -1) {
				found++
				if _, ok := known[name[1]]; !ok {
					t.Errorf("%s: %s is in no list of metrics", path, name[1])
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if found < 30 {
		t.Errorf("found only %d names", found)
	}
}

func TestPage_IsUpToDate(t *testing.T) {
	programs, err := listPrograms()
	if err != nil {
		t.Fatal(err)
	}
	is, err := os.ReadFile("../../" + pageFile)
	if err != nil {
		t.Fatal(err)
	}
	if want, err := renderPage(string(is), programs); err != nil || want != string(is) {
		t.Errorf("%s is out of date; run make generate (%v)", pageFile, err)
	}
}
