package manager

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

func TestMain_RejectsInvalidFlags(t *testing.T) {
	for _, c := range []struct {
		name, in, want string
		wantStatus     int
	}{
		{"an unknown controller lists the known ones", "--controllers=*,-jbo", `unknown controller "jbo"; the controllers are job, taskgroup, task, robot, robotidentity, rollout, maintenancewindow, jobflow, jobtemplate, cronjobflow, vcjob, raycluster, archive`, 2},
		{"an unknown way to approve", "--approve-robots=never", "--approve-robots=never: must be auto or manual", 2},
		{"no time before a robot is offline", "--offline-after=0s", "--offline-after=0s: must be positive", 2},
		{"no workers", "--concurrency=0", "--concurrency=0: must be 1 or more", 2},
		{"an unknown flag", "--frobnicate", "unknown flag: --frobnicate", 2},
		{"an unknown gate", "--feature-gates=RayClusterStatusCondition=true", `unknown gate "RayClusterStatusCondition"; known gates are GCSFaultToleranceEmbeddedStorage, RayClusterNetworkPolicy, RayClusterStatusConditions, RayMultiHostIndexing`, 2},
		{"a gate without a value", "--feature-gates=RayMultiHostIndexing", "use RayMultiHostIndexing=true or RayMultiHostIndexing=false", 2},
		{"an unsupported gate", "--feature-gates=RayClusterMTLS=true", "RayClusterMTLS is not supported yet", 2},
		{"a scheduler for whole clusters", "--batch-scheduler=volcano", "not supported yet", 2},
		{"a scheduler for whole clusters, by its older flag", "--enable-batch-scheduler", "not supported yet", 2},
		{"a scheduler that is neither on nor off", "--enable-batch-scheduler=perhaps", "invalid argument", 2},
		{"an unknown form of the log", "--log-stdout-encoder=xml", "--log-stdout-encoder=xml: must be json or console", 2},
		{"an unknown level of the log", "--zap-log-level=loud", "--zap-log-level=loud: must be debug, info, error, panic or a number from 1 to 127", 2},
		{"a level of the log beyond the maximum", "--zap-log-level=128", "--zap-log-level=128: must be", 2},
		{"a switch without effect that is neither on nor off", "--use-kubernetes-proxy=perhaps", "invalid argument", 2},
		{"a configuration that is not there", "--config=/does/not/exist", "no such file", 2},
		{"metrics that are neither on nor off", "--enable-metrics=perhaps", "invalid argument", 2},
		{"a negative limit", "--qps=-1", "--qps=-1: must be 0 (no limit) or more", 2},
		{"a burst without a limit has no effect, and stops nothing", "--burst=200 --kubeconfig=/does/not/exist", "kubeconfig", 1},
		{"an invalid namespace", "--watch-namespace=a,B_", "--watch-namespace=B_: is not a valid namespace name", 2},
		{"an invalid archive address", "--archive=mysql:x", "--archive: archive: must be sqlite:PATH or postgres://", 2},
		{"a negative archive size", "--archive-max-age=-1h --archive-max-bytes=-1", "--archive-max-bytes=-1: must be 0", 2},
		{"a kubeconfig that is not there", "--kubeconfig=/does/not/exist", "kubeconfig", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out, errs bytes.Buffer
			if got := Main(strings.Fields(c.in), &out, &errs); got != c.wantStatus || !strings.Contains(errs.String(), c.want) {
				t.Errorf("status %d, output %s", got, errs.String())
			}
		})
	}
}

func TestMain_PrintsVersion(t *testing.T) {
	var out, errs bytes.Buffer
	if got := Main([]string{"--version"}, &out, &errs); got != 0 || !strings.HasPrefix(out.String(), "k8s4r-manager ") {
		t.Errorf("status %d, output %s%s", got, out.String(), errs.String())
	}
}

func TestMain_PrintsHelp(t *testing.T) {
	var out, errs bytes.Buffer
	if got := Main([]string{"--help"}, &out, &errs); got != 0 || !strings.Contains(out.String(), "--offline-after") {
		t.Errorf("status %d, output %s%s", got, out.String(), errs.String())
	}
}

func TestSelection(t *testing.T) {
	for _, c := range []struct {
		name string
		in   selection
		want string
	}{
		{"the star is all", selection{"*"}, "job taskgroup task robot robotidentity rollout maintenancewindow jobflow jobtemplate cronjobflow vcjob raycluster archive retention"},
		{"all but one", selection{"*", "-task"}, "job taskgroup robot robotidentity rollout maintenancewindow jobflow jobtemplate cronjobflow vcjob raycluster archive retention"},
		{"only one", selection{"robot"}, "robot"},
		{"none", selection{"-robot"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			for _, n := range Names {
				if c.in.isSelected(n) {
					got = append(got, n)
				}
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("runs %v", got)
			}
		})
	}
}

func TestFlags_AcceptVolcanoNames(t *testing.T) {
	var c Config
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	address := f.String("metrics-bind-address", ":8080", "")
	c.addFlags(f)
	for _, step := range []struct{ in, want string }{
		{"--listen-address=:9999", ":9999"},
		{"--enable-metrics=true", ":9999"},
		{"--enable-metrics=false", "0"},
	} {
		if err := f.Parse([]string{step.in, "--max-requeue-num=15"}); err != nil || *address != step.want || *c.MaxRequeue != 15 {
			t.Errorf("after %s metrics are at %s, %d tries, %v", step.in, *address, *c.MaxRequeue, err)
		}
	}
}

func TestFlags_AcceptKubeRayNames(t *testing.T) {
	var c Config
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	address, elect := f.String("metrics-bind-address", ":8080", ""), f.Bool("leader-elect", true, "")
	c.addFlags(f)
	err := f.Parse([]string{
		"--metrics-addr=:9999", "--enable-leader-election=false", "--reconcile-concurrency=3", "--batch-scheduler=",
		"--feature-gates=RayClusterStatusConditions=false,RayJobDeletionPolicy=true,RayClusterMTLS=false",
	})
	if err != nil || *address != ":9999" || *elect || c.Concurrency != 3 {
		t.Errorf("metrics at %s, election %v, concurrency %d, %v", *address, *elect, c.Concurrency, err)
	}
	if o := c.rayOptions(); o.Gates.StatusConditions || !o.Gates.MultiHostIndexing {
		t.Errorf("gates %+v", o.Gates)
	}
}

func TestReadEnvironment_AcceptsKubeRayVariables(t *testing.T) {
	t.Setenv("ENABLE_RANDOM_POD_DELETE", "perhaps")
	var out, errs bytes.Buffer
	if got := Main(nil, &out, &errs); got != 2 || !strings.Contains(errs.String(), "ENABLE_RANDOM_POD_DELETE") {
		t.Errorf("status %d, output %s", got, errs.String())
	}
}
