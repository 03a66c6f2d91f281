package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const monitoring = "../../config/monitoring"

// foreignMetrics lists the metrics of controller-runtime, client-go and Go in the dashboards,
// with their labels.
var foreignMetrics = map[string][]string{
	"controller_runtime_reconcile_total":        {"controller", "result"},
	"controller_runtime_reconcile_errors_total": {"controller"},
	"workqueue_depth":                           {"name", "controller", "priority"},
	"rest_client_requests_total":                {"code", "method", "host"},
	"process_resident_memory_bytes":             nil,
}

// prometheusLabels are on every series.
var prometheusLabels = []string{"job", "instance", "le"}

// expression is a PromQL expression of a dashboard or a rule.
type expression struct{ where, text string }

func listDashboards(t *testing.T) (all []string) {
	t.Helper()
	all, err := filepath.Glob(monitoring + "/*.json")
	if err != nil || len(all) != 3 {
		t.Fatalf("%d dashboards, want 3: %v", len(all), err)
	}
	return all
}

// readExpressions returns all expressions of a file.
func readExpressions(t *testing.T, file string) (all []expression) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var content any
	if strings.HasSuffix(file, ".json") {
		err = json.Unmarshal(text, &content)
	} else {
		err = yaml.Unmarshal(text, &content)
	}
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			if e, ok := v["expr"].(string); ok {
				all = append(all, expression{filepath.Base(file), e})
			}
			if q, ok := v["query"].(string); ok && strings.HasPrefix(q, "label_values(") {
				all = append(all, expression{filepath.Base(file), strings.Split(strings.TrimPrefix(q, "label_values("), ",")[0]})
			}
			for _, x := range v {
				walk(x)
			}
		case []any:
			for _, x := range v {
				walk(x)
			}
		}
	}
	walk(content)
	return all
}

var (
	quoted    = regexp.MustCompile(`"[^"]*"|'[^']*'`)
	selector  = regexp.MustCompile(`([a-zA-Z_:][a-zA-Z0-9_:]*)\{([^}]*)\}`)
	matcher   = regexp.MustCompile(`([a-zA-Z_][a-zA-Z0-9_]*)\s*(=~|!~|!=|=)`)
	grouping  = regexp.MustCompile(`\b(by|without|on|ignoring)\s*\(([^)]*)\)`)
	durations = regexp.MustCompile(`\[[^\]]*\]`)
	name      = regexp.MustCompile(`[a-zA-Z_:][a-zA-Z0-9_:]*`)
	// words of PromQL that these expressions use.
	words = []string{
		"sum", "max", "min", "count", "rate", "increase", "histogram_quantile", "absent", "time", "vector", "min_over_time",
		"and", "or", "unless",
	}
)

// findProblems returns the mistakes of an expression, given the metrics that exist.
func findProblems(e string, known map[string]metric) (all []string) {
	bare := quoted.ReplaceAllString(e, `""`)
	if open, closed := strings.Count(bare, "("), strings.Count(bare, ")"); open != closed || strings.Count(bare, "{") != strings.Count(bare, "}") || strings.Count(bare, "[") != strings.Count(bare, "]") {
		all = append(all, "its brackets do not match")
	}
	labels := slices.Clone(prometheusLabels)
	for _, used := range name.FindAllString(stripLabels(bare), -1) {
		of, ok := findLabels(used, known)
		labels = append(labels, of...)
		if !ok && !slices.Contains(words, used) {
			all = append(all, "there is no metric "+used)
		}
	}
	for _, s := range selector.FindAllStringSubmatch(bare, -1) {
		of, _ := findLabels(s[1], known)
		for _, m := range matcher.FindAllStringSubmatch(s[2], -1) {
			if !slices.Contains(append(of, prometheusLabels...), m[1]) {
				all = append(all, s[1]+" has no label "+m[1])
			}
		}
	}
	for _, g := range grouping.FindAllStringSubmatch(bare, -1) {
		for _, l := range name.FindAllString(g[2], -1) {
			if !slices.Contains(labels, l) {
				all = append(all, "none of its metrics has the label "+l)
			}
		}
	}
	return all
}

func stripLabels(e string) string {
	e = selector.ReplaceAllString(e, "$1")
	e = grouping.ReplaceAllString(e, "")
	return durations.ReplaceAllString(e, "")
}

func findLabels(metric string, known map[string]metric) ([]string, bool) {
	if of, ok := foreignMetrics[metric]; ok {
		return of, true
	}
	if m, ok := known[metric]; ok && m.Type != "histogram" {
		return m.Labels, true
	}
	for _, part := range []string{"_bucket", "_sum", "_count"} {
		if m, ok := known[strings.TrimSuffix(metric, part)]; ok && m.Type == "histogram" && strings.HasSuffix(metric, part) {
			return m.Labels, true
		}
	}
	return nil, false
}

func TestDashboardsAndRules_UseExistingMetrics(t *testing.T) {
	known, asked := metricsByName(t), map[string]bool{}
	n := 0
	for _, file := range append(listDashboards(t), monitoring+"/rules.yaml") {
		for _, e := range readExpressions(t, file) {
			n++
			for _, p := range findProblems(e.text, known) {
				t.Errorf("%s: %s: %s", e.where, e.text, p)
			}
			for _, used := range name.FindAllString(stripLabels(quoted.ReplaceAllString(e.text, `""`)), -1) {
				asked[used] = true
			}
		}
	}
	if n < 60 {
		t.Errorf("only %d expressions were found", n)
	}
	for _, must := range []string{"k8s4r_manager_robots", "k8s4r_server_report_lag_seconds_bucket", "k8s4r_broker_connections", "volcano_jobflow_succeed_phase_count", "kuberay_cluster_info"} {
		if !asked[must] {
			t.Errorf("no dashboard or rule uses %s", must)
		}
	}
}

func TestFindProblems(t *testing.T) {
	known := map[string]metric{"a": {Name: "a", Type: "gauge", Labels: []string{"x"}}, "h_seconds": {Name: "h_seconds", Type: "histogram"}}
	for e, want := range map[string]string{
		`sum by (x) (rate(a{x="b"}[5m])) > 0`:                                             "",
		`histogram_quantile(0.9, sum by (le) (rate(h_seconds_bucket[$__rate_interval])))`: "",
		`a or on (job) b`:      "there is no metric b",
		`a{y="1"}`:             "a has no label y",
		`sum by (y) (a)`:       "none of its metrics has the label y",
		`rate(h_seconds[5m])`:  "there is no metric h_seconds",
		`sum(a`:                "its brackets do not match",
		`quantile_over(a[5m])`: "there is no metric quantile_over",
	} {
		if got := strings.Join(findProblems(e, known), "; "); got != want {
			t.Errorf("%s: %q, want %q", e, got, want)
		}
	}
}

func TestDashboards_HaveFieldsThatGrafanaRequires(t *testing.T) {
	seen := map[string]bool{}
	for _, file := range listDashboards(t) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var d struct {
			UID, Title    string
			SchemaVersion int
			Panels        []struct {
				ID      int
				Title   string
				GridPos struct{ X, Y, W, H int }
				Targets []struct{ RefID string }
			}
		}
		if err := json.Unmarshal(text, &d); err != nil {
			t.Fatal(err)
		}
		if d.UID == "" || d.Title == "" || d.SchemaVersion == 0 || seen[d.UID] || len(d.Panels) < 8 {
			t.Errorf("%s: uid %q, title %q, schema %d, %d panels", file, d.UID, d.Title, d.SchemaVersion, len(d.Panels))
		}
		seen[d.UID] = true
		taken := map[string]string{}
		for _, p := range d.Panels {
			g := p.GridPos
			if p.Title == "" || len(p.Targets) == 0 || g.W <= 0 || g.H <= 0 || g.X+g.W > 24 {
				t.Errorf("%s: panel %d %q at %+v with %d questions", file, p.ID, p.Title, g, len(p.Targets))
			}
			for x := g.X; x < g.X+g.W; x++ {
				for y := g.Y; y < g.Y+g.H; y++ {
					cell := fmt.Sprint(x, ",", y)
					if other := taken[cell]; other != "" {
						t.Fatalf("%s: %q lies on %q", file, p.Title, other)
					}
					taken[cell] = p.Title
				}
			}
		}
	}
}

func TestAlerts_HaveSummaryAndDescription(t *testing.T) {
	text, err := os.ReadFile(monitoring + "/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var rules struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	if err := yaml.Unmarshal(text, &rules); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			if !strings.HasPrefix(r.Alert, "K8s4r") || seen[r.Alert] || r.Expr == "" {
				t.Errorf("%q is no alert of ours, or twice", r.Alert)
			}
			seen[r.Alert] = true
			if s := r.Labels["severity"]; s != "critical" && s != "warning" {
				t.Errorf("%s has the severity %q", r.Alert, s)
			}
			if r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
				t.Errorf("%s does not say what is wrong, and what to do", r.Alert)
			}
		}
	}
	if len(seen) < 10 {
		t.Errorf("only %d alerts", len(seen))
	}
}

// TestChart_HasSameMonitoringFiles: a chart cannot read files outside of its folder.
func TestChart_HasSameMonitoringFiles(t *testing.T) {
	for _, file := range append(listDashboards(t), monitoring+"/rules.yaml") {
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		is, err := os.ReadFile("../../charts/k8s4r/files/monitoring/" + filepath.Base(file))
		if err != nil || string(is) != string(want) {
			t.Errorf("%s in the chart is another (%v); run make generate", filepath.Base(file), err)
		}
	}
}
