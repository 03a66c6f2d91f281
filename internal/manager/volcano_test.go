package manager

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

// The arguments of Volcano's chart with its default values, of 1.13 and of 1.16.
const (
	volcanoChart = "--logtostderr --enable-healthz=true --enable-metrics=true --leader-elect=false --kube-api-qps=50 --kube-api-burst=100 --worker-threads=3 --worker-threads-for-gc=5" +
		" --worker-threads-for-podgroup=5 -v=4 2>&1"
	volcanoElected = "--logtostderr --enable-healthz=true --enable-metrics=true --leader-elect=true --leader-elect-resource-namespace=volcano-system --kube-api-qps=50 --kube-api-burst=100" +
		" --worker-threads=3 --worker-threads-for-gc=5 --worker-threads-for-podgroup=5 --controllers=*,-sharding-controller -v=4 2>&1"
)

// TestMain_StartsWithVolcanosFlags ends where the manager connects to the API server.
func TestMain_StartsWithVolcanosFlags(t *testing.T) {
	for _, c := range []struct{ name, line, ignored string }{
		{"the chart's default values", volcanoChart, "--logtostderr --worker-threads-for-gc --worker-threads-for-podgroup"},
		{"the chart with leader election", volcanoElected, "--logtostderr --worker-threads-for-gc --worker-threads-for-podgroup --controllers=-sharding-controller"},
		{
			"flags that the chart does not write",
			"--master=https://127.0.0.1:1 --scheduler-name=volcano --scheduler-name=other --inherit-owner-annotations=false --worker-threads-for-queue=5 --max-requeue-num=15 --listen-address=:1" +
				" --healthz-address=:2 --ca-cert-file=a --tls-cert-file=b --tls-private-key-file=c --lock-object-namespace=volcano-system --leader-elect-resource-name=vc-controller-manager" +
				" --leader-elect-lease-duration=15s --leader-elect-renew-deadline=10s --leader-elect-retry-period=2s --leader-elect-resource-lock=leases",
			"--scheduler-name --inherit-owner-annotations --worker-threads-for-queue --ca-cert-file --tls-cert-file --tls-private-key-file" +
				" --leader-elect-lease-duration --leader-elect-renew-deadline --leader-elect-retry-period --leader-elect-resource-lock",
		},
		{
			"klog's flags",
			"--v=0 --vmodule=a=1 --alsologtostderr=false --log_dir=/tmp --log_file=f --log_file_max_size=1800 --log-flush-frequency=5s --one_output --stderrthreshold=2" +
				" --add_dir_header --skip_headers --skip_log_headers --log_backtrace_at=a.go:1",
			"--vmodule --alsologtostderr --log-dir --log-file --log-file-max-size --log-flush-frequency --one-output --stderrthreshold" +
				" --add-dir-header --skip-headers --skip-log-headers --log-backtrace-at",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			args := strings.Fields(c.line)
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

// TestFlags_OfVolcanoThatWork compares them with our own flags of the same meaning.
func TestFlags_OfVolcanoThatWork(t *testing.T) {
	for theirs, ours := range map[string]string{
		"--worker-threads=3":                  "--concurrency=3",
		"--healthz-address=:11251":            "--health-probe-bind-address=:11251",
		"--enable-healthz=false":              "--health-probe-bind-address=0",
		"--enable-healthz=true":               "",
		"--leader-elect-resource-namespace=a": "--leader-elect-namespace=a",
		"--lock-object-namespace=a":           "--leader-elect-namespace=a",
		"-v=4":                                "--zap-log-level=4",
		"-v 0":                                "--zap-log-level=info",
		"--controllers=*,-job-controller":     "--controllers=*,-vcjob",
		"--controllers=+job-controller":       "--controllers=vcjob",
		"--controllers=jobflow-controller,+job-controller,queue-controller,jobtemplate-controller": "--controllers=jobflow,vcjob,jobtemplate",
	} {
		if got, want := describeFlags(t, theirs), describeFlags(t, ours); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", theirs, got, want)
		}
	}
}

// describeFlags returns the settings that flags of Volcano set, after a command line is parsed.
func describeFlags(t *testing.T, line string) []string {
	t.Helper()
	var cfg Config
	f := flagsOfAllPrograms()
	cfg.addFlags(f)
	if err := f.Parse(strings.Fields(line)); err != nil {
		t.Fatal(err)
	}
	if err := cfg.completeFlags(f); err != nil {
		t.Fatal(err)
	}
	all := append([]string{cfg.log.level}, cfg.Controllers...)
	for _, name := range []string{"concurrency", "health-probe-bind-address", "leader-elect-namespace"} {
		all = append(all, f.Lookup(name).Value.String())
	}
	return all
}

func TestMain_RejectsWhatVolcanoCannotMean(t *testing.T) {
	for line, want := range map[string]string{
		"-v=-1":                          "must be a number from 0 to 127",
		"-v=128":                         "must be a number from 0 to 127",
		"--enable-healthz=maybe":         "invalid syntax",
		"--logtostderr=maybe":            "invalid syntax",
		"--worker-threads=0":             "--concurrency=0: must be 1 or more",
		"--controllers=queue-controller": `unknown controller "queue-controller"`,
		"--controllers=*,-nosuch":        `unknown controller "nosuch"`,
		"--controllers=+pg-controller":   `unknown controller "+pg-controller"`,
	} {
		var out, errs bytes.Buffer
		if got := Main(append(strings.Fields(line), "--kubeconfig=/does/not/exist"), &out, &errs); got != 2 || !strings.Contains(errs.String(), want) {
			t.Errorf("%s: status %d, output %s", line, got, errs.String())
		}
	}
}
