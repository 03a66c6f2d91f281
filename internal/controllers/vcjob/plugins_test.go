package vcjob

import (
	"flag"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
)

// useArguments returns a change of a Job that uses a plugin with arguments.
func useArguments(plugin string, args ...string) func(*batchv1.Job) {
	return func(j *batchv1.Job) { j.Spec.Plugins = map[string][]string{plugin: args} }
}

func TestPlan_RefusesArgumentsWithoutEffect(t *testing.T) {
	const svc = "spec.plugins.svc: %s is not a valid argument; allowed are --disable-network-policy, --inject-hosts-env=BOOL, --publish-not-ready-addresses"
	for _, c := range []struct {
		name string
		use  func(*batchv1.Job)
		want string // empty: accepted
	}{
		{"no arguments", useArguments("svc"), ""},
		{"two dashes or one", useArguments("svc", "--disable-network-policy", "-inject-hosts-env=false"), ""},
		{"an unknown plugin", useArguments("nosuch"), "spec.plugins: unknown plugin nosuch; supported are " + strings.Join(pluginNames(), ", ")},
		{"an unknown flag", useArguments("svc", "--fast=secret"), strings.ReplaceAll(svc, "%s", "--fast")},
		{"a value of another type", useArguments("svc", "--inject-hosts-env=secret"), strings.ReplaceAll(svc, "%s", "--inject-hosts-env")},
		{"no flag", useArguments("svc", "--disable-network-policy", "secret"), strings.ReplaceAll(svc, "%s", "number 2")},
		{"a malformed flag", useArguments("svc", "--disable-network-policy", "-----BEGIN secret"), strings.ReplaceAll(svc, "%s", "number 2")},
		{"only a malformed flag", useArguments("svc", "--=secret"), strings.ReplaceAll(svc, "%s", "number 1")},
		{"a request for help", useArguments("svc", "-h"), strings.ReplaceAll(svc, "%s", "-h")},
		{"a flag of a plugin without any", useArguments("env", "--x"), "spec.plugins.env: --x is not a valid argument; it takes none"},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := job("Pending", 2)
			c.use(j)
			if c.want != "" {
				requireFailed(t, j, c.want)
			} else if actions := Plan(t0, 0, newInput(j)); len(actions.CreatePods) != 2 {
				t.Errorf("%+v", actions.Change)
			}
		})
	}
}

// TestPlan_EachArgumentHasEffect sets each argument of each plugin to another value than its default.
func TestPlan_EachArgumentHasEffect(t *testing.T) {
	base := map[string][]string{ // without which some have none
		"pytorch": {"--wait-master-enabled"},
		"ssh":     {"--ssh-private-key=A", "--ssh-public-key=B"},
	}
	values := map[string]string{
		"": "", "=BOOL": "=false", "=PORT": "=7000", "=SECONDS": "=60", "=PATH": "=/x", "=TASK": "=other", "=CONTAINER": "=side", "=IMAGE": "=example.com/nc", "=KEY": "=C",
	}
	for i := range plugins {
		p := &plugins[i]
		plan := func(args ...string) []client.Object {
			j := pluginJob(map[string]int32{"chief": 1, "evaluator": 1, "head": 1, "master": 2, "other": 1, "ps": 1, "worker": 1}, p.name, args...)
			for t := range j.Spec.Tasks {
				s := &j.Spec.Tasks[t].Template.Spec
				s.Containers = append(s.Containers, corev1.Container{Name: "side", Image: "image"})
			}
			return planPlugins(t, j)
		}
		f := flag.NewFlagSet(p.name, flag.ContinueOnError)
		p.define(f)
		f.VisitAll(func(one *flag.Flag) {
			value, known := values[one.Usage]
			without := slices.DeleteFunc(slices.Clone(base[p.name]), func(arg string) bool { return arg == "--"+one.Name })
			if arg := "--" + one.Name + value; !known || equality.Semantic.DeepEqual(plan(without...), plan(append(without, arg)...)) {
				t.Errorf("%s: %s changes nothing", p.name, arg)
			}
		})
	}
}

// TestPlan_HostsFollowTheTemplate lists the names that the Pods have.
func TestPlan_HostsFollowTheTemplate(t *testing.T) {
	j := job("Pending", 2, 2)
	j.Spec.Tasks[1].Template.Spec.Hostname, j.Spec.Tasks[1].Template.Spec.Subdomain = "one", "other"
	useArguments("svc")(j)
	actions := Plan(t0, 0, newInput(j))
	var data map[string]string
	for _, o := range actions.EnsureObjects {
		if hosts, ok := o.(*corev1.ConfigMap); ok {
			data = hosts.Data
		}
	}
	if data["VC_A_HOSTS"] != "j-a-0.j,j-a-1.j" || data["VC_B_HOSTS"] != "one.other" {
		t.Errorf("%v", data)
	}
	pod := actions.CreatePods[3].Spec
	if pod.Hostname != "one" || pod.Subdomain != "other" || pod.Volumes[0].Name != "j-svc" {
		t.Errorf("%+v", pod)
	}
}
