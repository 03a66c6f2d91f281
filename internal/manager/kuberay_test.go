package manager

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
)

// The arguments of KubeRay's chart with its default values, and its settings file.
const (
	chartGates = "--feature-gates=RayClusterStatusConditions=true,RayJobDeletionPolicy=true,RayMultiHostIndexing=true,RayServiceIncrementalUpgrade=true,RayCronJob=false,SidecarSubmitterRestart=false," +
		"RayClusterNetworkPolicy=false,GCSFaultToleranceEmbeddedStorage=false,RayClusterMTLS=false,RayClusterHistoryServer=false,KubernetesWAS=false"
	chartFlags = "--log-stdout-encoder json --log-file-encoder json --enable-leader-election=true --enable-metrics=true --reconcile-concurrency=1 --qps=100 --burst=200 " + chartGates
	chartFile  = `
enableLeaderElection: true
enableMetrics: true
nodeEventForwarder:
  enabled: false
reconcileConcurrency: 1
qps: 100
burst: 200
logStdoutEncoder: "json"
logFileEncoder: "json"
`
	allFields = chartFile + `
watchNamespace: "a,b"
metricsAddr: :8080
probeAddr: :8082
leaderElectionNamespace: rays
useKubernetesProxy: true
deleteRayJobAfterJobFinishes: true
forcedClusterUpgrade: false
logFile: /var/log/operator.log
enableBatchScheduler: false
batchScheduler: default
headSidecarContainers: [{name: a, image: a}]
workerSidecarContainers: [{name: a, image: a}]
defaultContainerEnvs: [{name: A, value: b}]
defaultPodAnnotations: {a: b}
defaultPodLabels: {a: b}
allowedNodeLabels: [topology.kubernetes.io/zone]
`
)

// TestMain_StartsWithKubeRaysSettings ends where the manager connects to the API server.
func TestMain_StartsWithKubeRaysSettings(t *testing.T) {
	for _, c := range []struct {
		name, line, file string
		ignored          string // the settings that are logged
	}{
		{"the chart's default values", chartFlags, "", "--log-file-encoder"},
		{"all values of the chart", "--batch-scheduler=default --watch-namespace a,b --log-file-path /var/log/operator.log --log-stdout-encoder console --log-file-encoder console" +
			" --use-kubernetes-proxy=true --enable-leader-election=false --enable-metrics=false --reconcile-concurrency=3 --qps=50.5 --burst=100 " + chartGates,
			"", "--log-file-path --log-file-encoder --use-kubernetes-proxy"},
		{"flags that the chart does not write", "--enable-batch-scheduler=false --forced-cluster-upgrade --metrics-addr=:1 --health-probe-bind-address=:2 --leader-election-namespace=rays" +
			" --zap-devel --zap-encoder=console --zap-log-level=debug --zap-stacktrace-level=panic --zap-time-encoding=iso8601",
			"", "--forced-cluster-upgrade --zap-devel --zap-stacktrace-level --zap-time-encoding"},
		{"the chart's settings file", chartGates, chartFile, "logFileEncoder nodeEventForwarder"},
		{"no batch scheduler, by its name", "--batch-scheduler=none", "batchScheduler: none", "--batch-scheduler"},
		{"a file with all fields", chartGates, allFields, "logFile logFileEncoder useKubernetesProxy forcedClusterUpgrade deleteRayJobAfterJobFinishes nodeEventForwarder allowedNodeLabels"},
		{"a file and flags that it replaces", "--qps=1 --enable-metrics=false --use-kubernetes-proxy", chartFile,
			"--use-kubernetes-proxy logFileEncoder nodeEventForwarder --qps --enable-metrics"},
	} {
		t.Run(c.name, func(t *testing.T) {
			args := strings.Fields(c.line)
			if c.file != "" {
				args = append(args, "--config", settingsFile(t, c.file))
			}
			var out, errs bytes.Buffer
			if got := Main(append(args, "--kubeconfig=/does/not/exist"), &out, &errs); got != 1 || !strings.Contains(errs.String(), "kubeconfig") {
				t.Errorf("status %d, output %s", got, errs.String())
			}
			if got := strings.Join(loggedSettings(t, args), " "); got != c.ignored {
				t.Errorf("without effect are %s, want %s", got, c.ignored)
			}
		})
	}
}

// loggedSettings returns the settings without effect that the manager logs, one in each line.
func loggedSettings(t *testing.T, args []string) (names []string) {
	t.Helper()
	var cfg Config
	f := flagsOfAllPrograms()
	cfg.addFlags(f)
	if err := f.Parse(args); err != nil {
		t.Fatal(err)
	}
	if err := cfg.completeFlags(f); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cfg.log = logConfig{encoder: "json", level: "info"}
	cfg.ignored.logSettings(logr.FromSlogHandler(cfg.log.newHandler(&out)))
	for line := range strings.Lines(out.String()) {
		var entry struct{ Msg, Setting, Reason string }
		if err := json.Unmarshal([]byte(line), &entry); err != nil || entry.Reason == "" || entry.Msg != "a setting has no effect" {
			t.Errorf("%s: %v", line, err)
		}
		names = append(names, entry.Setting)
	}
	return names
}

func TestMain_LogsAsKubeRaysFlagsSay(t *testing.T) {
	for line, want := range map[string]string{
		"":                               `"level":"ERROR","msg":"k8s4r-manager has ended"`,
		"--zap-encoder=console":          `level=ERROR msg="k8s4r-manager has ended"`,
		"--log-stdout-encoder console":   `level=ERROR msg="k8s4r-manager has ended"`,
		"--zap-log-level=error":          `"level":"ERROR"`,
		"--zap-log-level=panic":          "",
		"--zap-log-level=debug --qps=-1": "--qps=-1: must be 0",
	} {
		var out, errs bytes.Buffer
		Main(append(strings.Fields(line), "--kubeconfig=/does/not/exist"), &out, &errs)
		if got := errs.String(); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%s: %s", line, got)
		}
	}
}

// Verbosities of logr are below Info.
func TestLogConfig_LimitsDetail(t *testing.T) {
	for level, want := range map[string][]int{"error": nil, "info": {0}, "debug": {0, 1}, "DEBUG": {0, 1}, "2": {0, 1, 2}} {
		var out bytes.Buffer
		c := logConfig{encoder: "json", level: level}
		log := logr.FromSlogHandler(c.newHandler(&out))
		var got []int
		for v := range 4 {
			out.Reset()
			if log.V(v).Info("detail"); out.Len() > 0 {
				got = append(got, v)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: logs the verbosities %v, want %v", level, got, want)
		}
	}
}
