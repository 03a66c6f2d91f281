package build

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
)

// HeadIngress returns the Ingress of the dashboard, or nil if the user does not enable it.
func HeadIngress(c *rayv1.RayCluster) *networkingv1.Ingress {
	h := &c.Spec.HeadGroupSpec
	if h.EnableIngress == nil || !*h.EnableIngress {
		return nil
	}
	o := h.IngressOptions
	if o == nil {
		o = &rayv1.IngressOptions{}
	}
	labels := ofCluster(c)
	labels[rayv1.LabelIdentifier] = identifier(c, rayv1.NodeTypeHead)
	in := &networkingv1.Ingress{ObjectMeta: ownedMeta(c, HeadIngressName(c), labels)}
	in.Annotations, in.Spec.IngressClassName = ingressAnnotations(c)
	in.Spec.Rules = []networkingv1.IngressRule{{Host: o.Host, IngressRuleValue: dashboardPath(c, o)}}
	for _, t := range o.TLS {
		in.Spec.TLS = append(in.Spec.TLS, networkingv1.IngressTLS{Hosts: slices.Clone(t.Hosts), SecretName: t.SecretName})
	}
	return in
}

func dashboardPath(c *rayv1.RayCluster, o *rayv1.IngressOptions) networkingv1.IngressRuleValue {
	kind := networkingv1.PathTypePrefix
	if o.PathType != nil {
		kind = networkingv1.PathType(*o.PathType)
	}
	port := portNumber(dashboardPort(c))
	for _, p := range headPorts(c) {
		if p.Name == portDashboard {
			port = p.Port
		}
	}
	return networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{Paths: []networkingv1.HTTPIngressPath{{
		Path: firstNonEmpty(o.Path, "/"), PathType: &kind,
		Backend: networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{
			Name: HeadServiceName(c), Port: networkingv1.ServiceBackendPort{Number: port},
		}},
	}}}}
}

// ingressAnnotations returns the cluster's annotations, which configure Ingress controllers. The
// class moves into its field, because the API server rejects both. Annotations of kubectl apply and
// about Pods are left out, because they belong to another object.
func ingressAnnotations(c *rayv1.RayCluster) (all map[string]string, class *string) {
	all = mergeMaps(c.Annotations, nil)
	if v, ok := all[rayv1.AnnotationIngressClass]; ok {
		class = &v
	}
	delete(all, rayv1.AnnotationIngressClass)
	delete(all, corev1.LastAppliedConfigAnnotation)
	delete(all, rayv1.AnnotationRefilled)
	return all, class
}
