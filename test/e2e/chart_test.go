package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/utils/ptr"
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
	if strings.HasPrefix(name, "k8s4r-manager") {
		here = append(here, "--api-bind-address=127.0.0.1:0")
	}
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
		{"a feature without a role of its own", namespace, broker + ",manager.separate={jobflow}", "/manager/separate/0"},
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

// render returns the objects that the chart makes of its values, by kind and name.
func (s *system) render(values ...string) map[string]*unstructured.Unstructured {
	s.t.Helper()
	args := []string{"template", "k8s4r", chart, "--namespace=k8s4r-system", "--kube-version=1.36.0", "--set", "server.mqttURL=mqtts://b:8884"}
	for _, v := range values {
		args = append(args, "--set", v)
	}
	out, err := s.helm(args...)
	if err != nil {
		s.t.Fatalf("helm template %s: %v\n%s", values, err, out)
	}
	all := map[string]*unstructured.Unstructured{}
	for docs := yaml.NewYAMLOrJSONDecoder(strings.NewReader(out), 4096); ; {
		o := &unstructured.Unstructured{}
		if err := docs.Decode(&o.Object); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			s.t.Fatal(err)
		}
		if o.Object != nil {
			all[o.GetKind()+" "+o.GetName()] = o
		}
	}
}

// TestChart_BindsRolesOfItsControllers: a right of a controller that does not run is one that an
// attacker in the manager's Pod would have for nothing.
func TestChart_BindsRolesOfItsControllers(t *testing.T) {
	s := &system{Up: &testkit.Up{}, t: t}
	const main, vcjob, ray = "k8s4r-manager", "k8s4r-manager-vcjob", "k8s4r-manager-raycluster"
	for _, c := range []struct {
		name, set string
		// bound has the account of each bound role; args a part of each Deployment's --controllers.
		bound, args map[string]string
	}{
		{"all", "manager.replicas=2", map[string]string{"robots": main, "flows": main, "vcjob": main, "raycluster": main}, map[string]string{main: "*"}},
		{"beside Volcano and KubeRay", "manager.controllers={*,-vcjob,-raycluster}", map[string]string{"robots": main, "flows": main}, map[string]string{main: "*,-vcjob,-raycluster"}},
		{"one controller", "manager.controllers={raycluster}", map[string]string{"raycluster": main}, map[string]string{main: "raycluster"}},
		{"separate accounts", "manager.separate={vcjob,raycluster}", map[string]string{"robots": main, "flows": main, "vcjob": vcjob, "raycluster": ray},
			map[string]string{main: "*,-raycluster,-vcjob", vcjob: "vcjob,archive,retention", ray: "raycluster,archive"}},
		{"a separate feature that does not run", "manager.separate={vcjob},manager.controllers={*,-vcjob}", map[string]string{"robots": main, "flows": main, "raycluster": main},
			map[string]string{main: "*,-vcjob"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			all := (&system{Up: s.Up, t: t}).render(c.set)
			for _, feature := range []string{"robots", "flows", "vcjob", "raycluster"} {
				checkBinding(t, all, "k8s4r-manager-"+feature, "k8s4r-manager-"+feature, c.bound[feature])
			}
			for _, name := range []string{main, vcjob, ray} {
				checkManager(t, all, name, c.args[name])
			}
			checkBinding(t, all, "k8s4r-manager", "k8s4r-manager", main)
		})
	}
}

// checkBinding checks which account a binding gives a ClusterRole. If account is empty, neither
// must exist.
func checkBinding(t *testing.T, all map[string]*unstructured.Unstructured, name, role, account string) {
	t.Helper()
	binding := all["ClusterRoleBinding "+name]
	if account == "" {
		if binding != nil || all["ClusterRole "+role] != nil {
			t.Errorf("%s is there", role)
		}
		return
	}
	if binding == nil || all["ClusterRole "+role] == nil || all["ServiceAccount "+account] == nil {
		t.Fatalf("%s is not bound to an account", role)
	}
	to, _, _ := unstructured.NestedString(binding.Object, "roleRef", "name")
	subjects, _, _ := unstructured.NestedSlice(binding.Object, "subjects")
	if len(subjects) != 1 || subjects[0].(map[string]any)["name"] != account || to != role {
		t.Errorf("%s is bound to %v", to, subjects)
	}
}

// checkManager checks a Deployment of the manager and what it needs besides its feature's role. If
// controllers is empty, it must not exist.
func checkManager(t *testing.T, all map[string]*unstructured.Unstructured, name, controllers string) {
	t.Helper()
	d := all["Deployment "+name]
	if controllers == "" {
		if d != nil {
			t.Errorf("Deployment %s is there", name)
		}
		return
	}
	var typed appsv1.Deployment
	if d == nil {
		t.Fatalf("there is no Deployment %s", name)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(d.Object, &typed); err != nil {
		t.Fatal(err)
	}
	pod := typed.Spec.Template.Spec
	for _, want := range []string{"--controllers=" + controllers, "--leader-elect-resource-name=" + name} {
		if !slices.Contains(pod.Containers[0].Args, want) {
			t.Errorf("%s: %s, want %s", name, pod.Containers[0].Args, want)
		}
	}
	lease := all["Role "+name+"-leader"]
	if pod.ServiceAccountName != name || lease == nil || !strings.Contains(fmt.Sprint(lease.Object["rules"]), "["+name+"]") {
		t.Errorf("%s runs as %s, which may hold %v", name, pod.ServiceAccountName, lease)
	}
	if name != "k8s4r-manager" {
		checkBinding(t, all, name+"-common", "k8s4r-manager", name)
	}
}

// TestChart_PodsAreRestrictedAndIsolated has every Pod that the chart can make.
func TestChart_PodsAreRestrictedAndIsolated(t *testing.T) {
	t.Parallel()
	s := start(t, "--without", "manager,server,broker,robots,node,console")
	s.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "strict", Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}}})
	all := s.render("console.enabled=true", "manager.separate={vcjob,raycluster}", "server.join.caSecret=ca", "manager.extraArgs={--archive=postgres://k@db.default.svc/h}",
		"console.archive=postgres://k@db.default.svc:6432/h")
	policies := map[string]networkingv1.NetworkPolicySpec{}
	for key, o := range all {
		if o.GetKind() != "NetworkPolicy" {
			continue
		}
		var policy networkingv1.NetworkPolicy
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &policy); err != nil {
			t.Fatalf("%s: %v", key, err)
		}
		policies[policy.Spec.PodSelector.MatchLabels["app.kubernetes.io/name"]] = policy.Spec
		o.SetNamespace("strict")
		if err := s.Create(t.Context(), o, client.DryRunAll); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
	pods := renderedPods(t, all)
	if len(pods) != 6 {
		t.Errorf("the chart makes %d Pods", len(pods))
	}
	for name, pod := range pods {
		pod.Namespace, pod.Spec.ServiceAccountName = "strict", "" // accounts are not what this is about
		if err := s.Create(t.Context(), pod, client.DryRunAll); err != nil {
			t.Errorf("a Pod of %s is refused: %v", name, err)
		}
		for _, c := range pod.Spec.Containers {
			if c.SecurityContext == nil || !ptr.Deref(c.SecurityContext.ReadOnlyRootFilesystem, false) {
				t.Errorf("%s: container %s can write to its image", name, c.Name)
			}
		}
		policy, found := policies[name]
		if !found || len(policy.PolicyTypes) != 2 {
			t.Errorf("%s has the policy %+v", name, policy)
			continue
		}
		checkServedPorts(t, name, pod, policy)
	}
	for name, port := range map[string]int32{"k8s4r-server": 8884, "k8s4r-console": 6432, "k8s4r-manager": 5432, "k8s4r-manager-vcjob": 5432} {
		if !reaches(policies[name], port) {
			t.Errorf("%s cannot reach port %d", name, port)
		}
	}
	if reaches(policies["k8s4r-doctor"], 8884) {
		t.Error("the doctor can reach the broker")
	}
	for key := range s.render("console.enabled=true", "networkPolicies.enabled=false") {
		if strings.HasPrefix(key, "NetworkPolicy ") {
			t.Errorf("%s is there though it is off", key)
		}
	}
	open := s.render("networkPolicies.restrictEgress=false")["NetworkPolicy k8s4r-server"]
	if _, restricted, _ := unstructured.NestedSlice(open.Object, "spec", "egress"); restricted {
		t.Error("egress is restricted though it is off")
	}
}

// renderedPods returns the Pods of all Deployments and those that the chart makes itself, by the
// name in their labels.
func renderedPods(t *testing.T, all map[string]*unstructured.Unstructured) map[string]*corev1.Pod {
	t.Helper()
	pods := map[string]*corev1.Pod{}
	for key, o := range all {
		pod := &corev1.Pod{}
		var err error
		switch o.GetKind() {
		case "Deployment":
			var d appsv1.Deployment
			err = runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &d)
			pod.Labels, pod.Spec = d.Spec.Template.Labels, d.Spec.Template.Spec
		case "Pod":
			err = runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, pod)
		default:
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", key, err)
		}
		pod.Name = "p"
		pods[pod.Labels["app.kubernetes.io/name"]] = pod
	}
	return pods
}

// checkServedPorts checks that a policy lets in exactly the ports of a Pod.
func checkServedPorts(t *testing.T, name string, pod *corev1.Pod, policy networkingv1.NetworkPolicySpec) {
	t.Helper()
	var served, open []string
	for _, p := range pod.Spec.Containers[0].Ports {
		served = append(served, p.Name)
	}
	for _, rule := range policy.Ingress {
		if len(rule.Ports) == 0 {
			t.Errorf("%s lets everything in", name)
		}
		for _, p := range rule.Ports {
			open = append(open, p.Port.String())
		}
	}
	slices.Sort(served)
	slices.Sort(open)
	if !slices.Equal(served, open) {
		t.Errorf("%s serves %v, and lets in %v", name, served, open)
	}
}

// reaches reports whether a policy allows connections to a port anywhere.
func reaches(policy networkingv1.NetworkPolicySpec, port int32) bool {
	return slices.ContainsFunc(policy.Egress, func(rule networkingv1.NetworkPolicyEgressRule) bool {
		return len(rule.To) == 0 && slices.ContainsFunc(rule.Ports, func(p networkingv1.NetworkPolicyPort) bool { return p.Port.IntVal == port })
	})
}

// TestChart_ConfiguresTheConsole: without the console there is no service account, and without
// impersonation there is no permission to impersonate.
func TestChart_ConfiguresTheConsole(t *testing.T) {
	s := &system{Up: &testkit.Up{}, t: t}
	for console, want := range map[string]bool{"console.enabled=true": true, "console.enabled=true,console.impersonate=true": true, "console.impersonate=true": false} {
		out, err := s.helm("template", "k8s4r", chart, "--namespace=k8s4r-system", "--kube-version=1.36.0", "--set", "server.mqttURL=mqtts://b:8883,"+console)
		bound := strings.Contains(out, "kind: ClusterRoleBinding\nmetadata:\n  name: k8s4r-console-impersonator\n")
		if has := strings.Contains(out, "name: k8s4r-console"); err != nil || has != want || bound != (want && strings.Contains(console, "impersonate")) {
			t.Errorf("%s: %v, there is a console %v, which acts for others %v", console, err, has, bound)
		}
	}
}
