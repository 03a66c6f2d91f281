package build

import (
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
)

// addProbes adds probes of Ray's health, unless the user sets any.
func addProbes(c *rayv1.RayCluster, n *node, params map[string]string, ray *corev1.Container) {
	check := health{
		head: n.isHead(), agent: params[paramAgentPort], dashboard: dashboardPort(c),
		http: atLeast(c.Spec.RayVersion, 53),
	}
	if ray.LivenessProbe == nil {
		ray.LivenessProbe = check.newProbe(30, 120)
	}
	if ray.ReadinessProbe != nil {
		return
	}
	if !isOwnedByRayService(c) || n.isHead() {
		ray.ReadinessProbe = check.newProbe(10, 10)
		return
	}
	// A worker without a running Serve proxy must stop getting requests at once.
	check.serve = servePort(ray)
	ray.ReadinessProbe = check.newProbe(10, 1)
}

// health holds what the probes of a Ray container check.
type health struct {
	head      bool
	agent     string // port of the agent
	dashboard string // port of the dashboard, on heads
	http      bool   // the agent answers for the whole node
	serve     int32  // port of Ray Serve; if 0, it is not checked
}

func (h health) newProbe(delay, failures int32) *corev1.Probe {
	timeout := int32(2)
	if h.head {
		timeout = 5
	}
	p := &corev1.Probe{InitialDelaySeconds: delay, TimeoutSeconds: timeout, PeriodSeconds: 5, SuccessThreshold: 1, FailureThreshold: failures}
	if port, err := strconv.Atoi(h.agent); h.http && h.serve == 0 && err == nil {
		p.HTTPGet = &corev1.HTTPGetAction{Path: "/api/healthz", Port: intstr.FromInt(port)}
		return p
	}
	p.Exec = &corev1.ExecAction{Command: []string{"bash", "-c", h.probeCommand()}}
	return p
}

func (h health) probeCommand() string {
	ask := func(timeout int, port, path string) string {
		return fmt.Sprintf("wget --tries 1 -T %d -q -O- http://localhost:%s/%s | grep success", timeout, port, path)
	}
	all := ask(2, h.agent, "api/local_raylet_healthz")
	if h.head {
		all += " && " + ask(10, h.dashboard, "api/gcs_healthz")
	}
	if h.serve != 0 {
		all += " && " + ask(10, strconv.Itoa(int(h.serve)), "-/healthz")
	}
	return all
}

// servePort returns the port of Ray Serve.
func servePort(ray *corev1.Container) int32 {
	for i := range ray.Ports {
		if ray.Ports[i].Name == portServe {
			return ray.Ports[i].ContainerPort
		}
	}
	return 8000
}
