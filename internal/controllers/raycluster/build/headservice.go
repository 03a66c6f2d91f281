package build

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
)

// The names of ports.
const (
	portClient    = "client"
	portDashboard = "dashboard"
	portGCS       = "gcs-server"
	portMetrics   = "metrics"
	portServe     = "serve"
)

// headSelector finds the head by labels that it really has: the user may have changed
// some of them in the template.
func headSelector(s *Settings, c *rayv1.RayCluster) map[string]string {
	has, selector := podLabels(s, c, headNode(c)), map[string]string{}
	for _, l := range []string{rayv1.LabelCluster, rayv1.LabelNodeType, rayv1.LabelIdentifier, rayv1.LabelAppName, rayv1.LabelCreatedBy} {
		selector[l] = has[l]
	}
	return selector
}

// HeadService is how others reach the head. Without a wish of the user's it is
// headless: a worker then finds a head that is not ready yet.
func HeadService(s *Settings, c *rayv1.RayCluster) *corev1.Service {
	h := &c.Spec.HeadGroupSpec
	svc := &corev1.Service{ObjectMeta: owned(c, HeadServiceName(c), headSelector(s, c))}
	svc.Annotations = maps.Clone(c.Spec.HeadServiceAnnotations)
	svc.Spec = corev1.ServiceSpec{Selector: headSelector(s, c), Ports: headPorts(c), Type: h.ServiceType}
	if h.HeadService != nil {
		mergeHeadService(svc, h.HeadService.DeepCopy())
		return svc
	}
	if (h.ServiceType == "" || h.ServiceType == corev1.ServiceTypeClusterIP) && !s.HeadClusterIP {
		svc.Spec.ClusterIP = corev1.ClusterIPNone
		svc.Spec.PublishNotReadyAddresses = true
	}
	return svc
}

// mergeHeadService takes over all that the user says. Our labels and selector count
// more, and our ports come after the user's.
func mergeHeadService(svc, user *corev1.Service) {
	svc.Annotations = merged(svc.Annotations, user.Annotations)
	svc.Labels = merged(user.Labels, svc.Labels)
	ours := svc.Spec
	svc.Spec = user.Spec
	svc.Spec.Selector = merged(user.Spec.Selector, ours.Selector)
	if user.Spec.Type == "" {
		svc.Spec.Type = ours.Type
	}
	svc.Spec.Ports = user.Spec.Ports
	for _, p := range ours.Ports {
		if !slices.ContainsFunc(user.Spec.Ports, func(u corev1.ServicePort) bool { return u.Name == p.Name || u.Port == p.Port }) {
			svc.Spec.Ports = append(svc.Spec.Ports, p)
		}
	}
	sortPorts(svc.Spec.Ports)
}

// merged has all of both. Where both have a key, the second counts.
func merged(a, b map[string]string) map[string]string {
	if len(a)+len(b) == 0 {
		return nil
	}
	all := map[string]string{}
	maps.Copy(all, a)
	maps.Copy(all, b)
	return all
}

// headPorts are the ports of the head's container, or else those that Ray uses.
func headPorts(c *rayv1.RayCluster) []corev1.ServicePort {
	n := headNode(c)
	var all []corev1.ServicePort
	for _, p := range n.ray().Ports {
		all = append(all, servicePort(or(p.Name, fmt.Sprintf("%d-port", p.ContainerPort)), p.ContainerPort, p.Protocol))
	}
	if len(all) == 0 {
		all = []corev1.ServicePort{
			servicePort(portClient, 10001, ""),
			servicePort(portDashboard, portNumber(dashboardPort(c)), ""),
			servicePort(portGCS, portNumber(headPort(c)), ""),
			servicePort(portServe, 8000, ""),
		}
	}
	if !slices.ContainsFunc(all, func(p corev1.ServicePort) bool { return p.Name == portMetrics }) {
		all = append(all, servicePort(portMetrics, metricsPort(n), ""))
	}
	sortPorts(all)
	return all
}

func sortPorts(all []corev1.ServicePort) {
	slices.SortStableFunc(all, func(a, b corev1.ServicePort) int { return strings.Compare(a.Name, b.Name) })
}

func servicePort(name string, port int32, protocol corev1.Protocol) corev1.ServicePort {
	app := "tcp"
	return corev1.ServicePort{Name: name, Port: port, Protocol: protocol, AppProtocol: &app}
}

// portNumber of a flag. Validate has refused what is none.
func portNumber(text string) int32 {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return 0
	}
	return int32(n)
}
