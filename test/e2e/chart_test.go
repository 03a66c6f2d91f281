package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/internal/testkit"
	"k8s4r.io/k8s4r/internal/testkit/testca"
)

const chart = "../../charts/k8s4r"

// helm runs Helm and returns what it printed.
func (s *system) helm(args ...string) (string, error) {
	cmd := exec.Command(testkit.BinaryPath(s.t, "helm"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+s.Kubeconfig, "HELM_CACHE_HOME="+s.t.TempDir(), "HELM_CONFIG_HOME="+s.t.TempDir())
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestChart_InstallsAWorkingSystem installs the chart into a namespace that takes nothing but restricted Pods,
// runs its programs with the arguments and permissions of the chart, and checks with
// `helm test` that they work. The Pods of the Deployments themselves need an
// engine and images, which this cluster has not.
func TestChart_InstallsAWorkingSystem(t *testing.T) {
	// The Pod of helm test is a process of this host, which finds its command there.
	t.Setenv("PATH", filepath.Dir(testkit.BinaryPath(t, "kubectl-k8s4r"))+":"+os.Getenv("PATH"))
	s := start(t, "--without", "manager,server,broker,robots")
	broker := testkit.NewSecureMosquitto(t)
	const namespace = "k8s4r-system"
	if out, err := s.kubectl("label", "--overwrite", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted"); err != nil {
		t.Fatal(err, out)
	}
	install := []string{
		"upgrade", "--install", "k8s4r", chart, "--namespace", namespace,
		"--take-ownership", // of the definitions that every embedded cluster has
		"--set", "server.mqttURL=" + broker.URL(), "--set", "manager.webhook=false",
		"--set", "manager.watchNamespaces={default,fleet}", "--set", "server.robotNamespace=fleet", "--set", "console.enabled=true,console.publicURL=https://console.example.com",
	}
	for range 2 { // the second is an upgrade
		if out, err := s.helm(install...); err != nil {
			t.Fatalf("helm: %v\n%s", err, out)
		}
	}
	if out, err := s.helm("test", "k8s4r", "--namespace", namespace, "--timeout", "2m"); err == nil {
		t.Errorf("helm test is content though nothing runs:\n%s", out)
	}
	s.deployed(namespace, "k8s4r-manager")
	s.deployed(namespace, "k8s4r-server", append(broker.ServerFlags(broker.Addr), "--log-dir="+t.TempDir())...)
	s.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "fleet"}})
	runAgent(t, s, "r1", testkit.JoinFlags(t, s, "fleet", "r1"))
	testkit.EventuallyNoError(t, time.Minute, "the robot is Online", func() error {
		out, err := s.kubectl("wait", "--for=jsonpath={.status.phase}=Online", "robot/r1", "--namespace=fleet", "--timeout=1s")
		if err != nil {
			return errors.New(out)
		}
		return nil
	})
	if out, err := s.helm("test", "k8s4r", "--namespace", namespace, "--timeout", "2m", "--logs"); err != nil {
		t.Errorf("helm test: %v\n%s", err, out)
	}
	console, viewer := testkit.FreeAddr(t), s.bearer("viewer", "view")
	certificate := t.TempDir()
	testca.New(t).WriteServerFiles(certificate)
	s.deployed(namespace, "k8s4r-console", "--bind-address", console, "--cert-file", filepath.Join(certificate, "tls.crt"), "--key-file", filepath.Join(certificate, "tls.key"))
	testkit.EventuallyNoError(t, time.Minute, "the console shows the robot", func() error {
		if code, body := get(t, "https://"+console+"/api/v1/objects/robots", viewer); code != http.StatusOK || !strings.Contains(body, `"name":"r1"`) {
			return fmt.Errorf("%d %s", code, body)
		}
		return nil
	})
}

// deployed runs the program of a Deployment as its Pod would: the API server must accept the Pod,
// the program its arguments, and its permissions must suffice. here replaces addresses and
// directories that cannot be used on a shared host.
func (s *system) deployed(namespace, name string, here ...string) *program {
	s.t.Helper()
	var d appsv1.Deployment
	if err := s.Get(context.Background(), client.ObjectKey{Namespace: namespace, Name: name}, &d); err != nil {
		s.t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: d.Spec.Template.Spec}
	if err := s.Create(context.Background(), pod, client.DryRunAll); err != nil {
		s.t.Errorf("a Pod of %s is refused: %v", name, err)
	}
	here = append(here, "--kubeconfig", s.serviceAccountKubeconfig(name), "--metrics-bind-address=0", "--health-probe-bind-address=0")
	return run(s.t, name, append(d.Spec.Template.Spec.Containers[0].Args, here...)...)
}

func TestChart_RejectsInvalidValues(t *testing.T) {
	s := &system{Up: &testkit.Up{}, t: t}
	const namespace, broker = "k8s4r-system", "server.mqttURL=mqtts://b:8883"
	for _, c := range []struct{ name, namespace, set, want string }{
		{"another namespace", "default", broker, "helm install --namespace k8s4r-system"},
		{"no broker", namespace, "offlineAfter=5m", "/server/mqttURL"},
		{"a broker that is no URL", namespace, "server.mqttURL=mosquitto:1883", "/server/mqttURL"},
		{"a broker without TLS", namespace, "server.mqttURL=mqtt://b:1883", "set server.allowPlaintextBroker"},
		{"an unknown value", namespace, "server.mqttUrl=mqtt://b:1883", "mqttUrl"},
		{"a time without a unit", namespace, broker + ",offlineAfter=five", "/offlineAfter"},
		{"replicas below none", namespace, broker + ",manager.replicas=-1", "/manager/replicas"},
		{"neither auto nor manual", namespace, broker + ",manager.approveRobots=never", "/manager/approveRobots"},
		{"an archive of a file that no other Pod has", namespace, broker + ",console.archive=sqlite:/history.db", "/console/archive"},
		{"a console below a path", namespace, broker + ",console.publicURL=https://example.com/console", "/console/publicURL"},
		{"two that publish under one name", namespace, broker + ",console.enabled=true,console.extraArgs={--mqtt-url=mqtts://b:8883}", "set console.replicas=1"},
		{"a namespace that cannot be", namespace, broker + ",manager.watchNamespaces={A_}", "/manager/watchNamespaces/0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if out, err := s.helm("template", "k8s4r", chart, "--namespace="+c.namespace, "--kube-version=1.36.0", "--set", c.set); err == nil || !strings.Contains(out, c.want) {
				t.Errorf("%v, want one of %s:\n%s", err, c.want, out)
			}
		})
	}
	for _, set := range []string{"server.mqttURL=mqtt://127.0.0.1:1883", "server.mqttURL=tcp://[::1]:1883", "server.mqttURL=mqtt://b:1883,server.allowPlaintextBroker=true"} {
		out, err := s.helm("template", "k8s4r", chart, "--namespace="+namespace, "--kube-version=1.36.0", "--set", set)
		if allowed := strings.Contains(out, "--allow-plaintext-broker"); err != nil || allowed != strings.Contains(set, "allowPlaintext") {
			t.Errorf("%s: %v, the flag is set: %v", set, err, allowed)
		}
	}
	monitored, err := s.helm("template", "k8s4r", chart, "--namespace="+namespace, "--kube-version=1.36.0", "--set", broker+",monitoring.dashboards=true,monitoring.rules=true,monitoring.ruleLabels.release=p")
	for _, want := range []string{"kind: PrometheusRule", "alert: K8s4rNoManagerLeads", "{{ $value | humanizePercentage }}", `grafana_dashboard: "1"`, "fleet-and-tasks.json:", "release: p"} {
		if err != nil || !strings.Contains(monitored, want) {
			t.Errorf("monitoring: %v, without %s", err, want)
		}
	}
	if out, err := s.helm("template", "k8s4r", chart, "--namespace="+namespace, "--kube-version=1.36.0", "--set", broker); err != nil || strings.Contains(out, "PrometheusRule") || strings.Contains(out, "grafana_dashboard") {
		t.Errorf("the chart renders monitoring objects without being asked: %v", err)
	}
	if out, err := s.helm("lint", chart, "--strict", "--kube-version=1.36.0", "--namespace", namespace, "--set", broker); err != nil {
		t.Errorf("lint: %v\n%s", err, out)
	}
}

// TestChart_ConfiguresTheConsole: without the console there is no service account, and without
// impersonation there is no permission to impersonate.
func TestChart_ConfiguresTheConsole(t *testing.T) {
	s := &system{Up: &testkit.Up{}, t: t}
	for console, want := range map[string]bool{"console.enabled=true": true, "console.enabled=true,console.impersonate=true": true, "console.impersonate=true": false} {
		out, err := s.helm("template", "k8s4r", chart, "--namespace=k8s4r-system", "--kube-version=1.36.0", "--set", "server.mqttURL=mqtts://b:8883,"+console)
		bound := strings.Contains(out, "kind: ClusterRoleBinding\nmetadata:\n  name: k8s4r-console-impersonator\n")
		if has := strings.Contains(out, "k8s4r-console"); err != nil || has != want || bound != (want && strings.Contains(console, "impersonate")) {
			t.Errorf("%s: %v, there is a console %v, which acts for others %v", console, err, has, bound)
		}
	}
}
