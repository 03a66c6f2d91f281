package manager

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// settingsFile writes a settings file with these fields.
func settingsFile(t *testing.T, fields string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "settings.yaml")
	if err := os.WriteFile(path, []byte("apiVersion: config.ray.io/v1alpha1\nkind: Configuration\n"+fields), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestSettingsFile_SetsFlags(t *testing.T) {
	all := settingsFile(t, `
watchNamespace: a,b
reconcileConcurrency: 3
metricsAddr: :9999
probeAddr: :9998
enableLeaderElection: false
leaderElectionNamespace: rays
qps: 100.5
burst: 200
featureGates: RayClusterStatusConditions=false
enableBatchScheduler: false
batchScheduler: ""
logStdoutEncoder: console
enableMetrics: true
defaultPodLabels: {team: blue}
`)
	quiet := settingsFile(t, "enableMetrics: false\nmetricsAddr: :9999\nqps:\n")
	fromFile := map[string]string{
		"watch-namespace": "[a,b]", "concurrency": "3", "metrics-bind-address": ":9999", "health-probe-bind-address": ":9998",
		"leader-elect": "false", "leader-elect-namespace": "rays", "qps": "100.5", "burst": "200", "log-stdout-encoder": "console",
	}
	for _, c := range []struct {
		name, file, line string
		want             map[string]string
	}{
		{"the file counts", all, "", fromFile},
		{"the file counts more than the command line, by either name", all,
			"--watch-namespace=c --concurrency=5 --metrics-bind-address=:1 --health-probe-bind-address=:2 --enable-leader-election --leader-elect-namespace=mine --qps=1 --burst=2 --zap-encoder=json --enable-metrics=false",
			fromFile},
		{"what the file does not set has its default, whatever the command line sets", quiet, "--watch-namespace=c --reconcile-concurrency=5 --qps=1 --log-stdout-encoder=console",
			map[string]string{"watch-namespace": "[]", "concurrency": "8", "qps": "0", "log-stdout-encoder": "json"}},
		{"no metrics, and qps not set", quiet, "", map[string]string{"metrics-bind-address": "0", "qps": "0", "concurrency": "8"}},
		{"no metrics, whatever address the command line sets", quiet, "--metrics-addr=:1", map[string]string{"metrics-bind-address": "0"}},
		{"what the file has no field for stays in effect", quiet, "--leader-elect-resource-name=mine --zap-log-level=debug", map[string]string{"leader-elect-resource-name": "mine", "zap-log-level": "debug"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var cfg Config
			f := flagsOfAllPrograms()
			cfg.addFlags(f)
			if err := f.Parse(append(strings.Fields(c.line), "--config="+c.file)); err != nil {
				t.Fatal(err)
			}
			if err := cfg.completeFromFile(f); err != nil {
				t.Fatal(err)
			}
			for name, want := range c.want {
				if got := f.Lookup(name).Value.String(); got != want {
					t.Errorf("--%s=%s, want %s", name, got, want)
				}
			}
			if c.file == all && (cfg.rayOptions().Gates.StatusConditions || cfg.Ray.Labels["team"] != "blue" || !slices.Equal(cfg.Namespaces, strings.Split(strings.Trim(c.want["watch-namespace"], "[]"), ","))) {
				t.Errorf("gates %+v, labels %v, namespaces %v", cfg.RayGates, cfg.Ray.Labels, cfg.Namespaces)
			}
		})
	}
}

// flagsOfAllPrograms returns the flags that package program adds.
func flagsOfAllPrograms() *pflag.FlagSet {
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.String("metrics-bind-address", ":8080", "")
	f.String("health-probe-bind-address", ":8081", "")
	f.String("leader-elect-namespace", "k8s4r-system", "")
	f.String("leader-elect-resource-name", "k8s4r-manager", "")
	f.Bool("leader-elect", true, "")
	f.String("master", "", "")
	f.Float32("qps", 0, "")
	f.Int("burst", 0, "")
	return f
}

func TestSettingsFile_RejectsInvalidValues(t *testing.T) {
	for fields, want := range map[string]string{
		"watchNamespaces: a":               "unknown field watchNamespaces; docs/reference/kinds/raycluster.md lists the fields",
		"reconcileConcurrency: many":       "reconcileConcurrency: invalid argument",
		"reconcileConcurrency: 0":          "--concurrency=0: must be 1 or more",
		"watchNamespace: [a]":              `watchNamespace: ["a"] is not a scalar`,
		"batchScheduler: volcano":          "batchScheduler: ",
		"enableBatchScheduler: true":       "enableBatchScheduler: ",
		"logStdoutEncoder: xml":            "--log-stdout-encoder=xml: must be json or console",
		"defaultPodLabels: {robot: y}":     "configuration: defaultPodLabels: found a bool where text is needed; write it in quotes",
		"defaultPodAnnotations: {at: 1}":   "configuration: defaultPodAnnotations: found a number where text is needed",
		`"": 1`:                            "unknown field ",
		"defaultContainerEnvs: [{nam: A}]": `unknown field "nam"`,
	} {
		var out, errs bytes.Buffer
		path := settingsFile(t, fields)
		got := Main([]string{"--config=" + path, "--kubeconfig=/does/not/exist"}, &out, &errs)
		if got != 2 || !strings.Contains(errs.String(), want) {
			t.Errorf("%s: status %d, output %s", fields, got, errs.String())
		}
	}
}
