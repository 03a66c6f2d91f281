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

// headSelector selects the head by the labels that its Pod gets: the template may override some of
// them.
func headSelector(s *Settings, c *rayv1.RayCluster) map[string]string {
	has, selector := podLabels(s, c, headNode(c)), map[string]string{}
	for _, l := range []string{rayv1.LabelCluster, rayv1.LabelNodeType, rayv1.LabelIdentifier, rayv1.LabelAppName, rayv1.LabelCreatedBy} {
		selector[l] = has[l]
	}
	return selector
}

// HeadService returns the Service of the head. By default it is headless, so that workers resolve a
// head that is not ready yet.
func HeadService(s *Settings, c *rayv1.RayCluster) *corev1.Service {
	h := &c.Spec.HeadGroupSpec
	svc := &corev1.Service{ObjectMeta: ownedMeta(c, HeadServiceName(c), headSelector(s, c))}
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

// mergeHeadService merges the user's Service. Our labels and selector win, and our ports follow the
// user's.
func mergeHeadService(svc, user *corev1.Service) {
	svc.Annotations = mergeMaps(svc.Annotations, user.Annotations)
	svc.Labels = mergeMaps(user.Labels, svc.Labels)
	ours := svc.Spec
	svc.Spec = user.Spec
	svc.Spec.Selector = mergeMaps(user.Spec.Selector, ours.Selector)
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

// mergeMaps returns the entries of both maps. For a key in both, b wins.
func mergeMaps(a, b map[string]string) map[string]string {
	if len(a)+len(b) == 0 {
		return nil
	}
	all := map[string]string{}
	maps.Copy(all, a)
	maps.Copy(all, b)
	return all
}

// headPorts returns the ports of the head's container, or else Ray's defaults.
func headPorts(c *rayv1.RayCluster) []corev1.ServicePort {
	n := headNode(c)
	var all []corev1.ServicePort
	for _, p := range n.rayContainer().Ports {
		all = append(all, servicePort(firstNonEmpty(p.Name, fmt.Sprintf("%d-port", p.ContainerPort)), p.ContainerPort, p.Protocol))
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

// portNumber parses the value of a port flag. Validate has rejected invalid values.
func portNumber(text string) int32 {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return 0
	}
	return int32(n)
}
