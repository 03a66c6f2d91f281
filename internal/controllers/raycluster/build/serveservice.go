package build

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
)

// ServeService returns the Service of Ray Serve on all Pods that serve. It returns nil if the user
// does not enable it or the head has no port named serve.
func ServeService(_ *Settings, c *rayv1.RayCluster) *corev1.Service {
	if c.Annotations[rayv1.AnnotationEnableServeService] != "true" {
		return nil
	}
	var ports []corev1.ServicePort
	for _, p := range headPorts(c) {
		if p.Name == portServe || strings.HasPrefix(p.Name, portServe+"-") {
			p.AppProtocol = nil // Serve has ports of HTTP and of gRPC
			ports = append(ports, p)
		}
	}
	if len(ports) == 0 {
		return nil
	}
	labels := ofCluster(c)
	labels[rayv1.LabelServe] = c.Name + "-serve"
	labels[rayv1.LabelOriginatedFromKind], labels[rayv1.LabelOriginatedFromName] = "RayCluster", c.Name
	return &corev1.Service{
		ObjectMeta: ownedMeta(c, ServeServiceName(c), labels),
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{rayv1.LabelCluster: c.Name},
			Ports:    ports,
			Type:     c.Spec.HeadGroupSpec.ServiceType,
		},
	}
}
