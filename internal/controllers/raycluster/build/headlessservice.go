package build

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
)

// HeadlessService returns the Service by which the hosts of a replica find each other, or nil if no
// replica has several hosts.
func HeadlessService(_ *Settings, c *rayv1.RayCluster) *corev1.Service {
	if !slices.ContainsFunc(c.Spec.WorkerGroupSpecs, func(g rayv1.WorkerGroupSpec) bool { return g.NumOfHosts > 1 }) {
		return nil
	}
	labels := ofCluster(c)
	labels[rayv1.LabelHeadlessService] = c.Name
	return &corev1.Service{
		ObjectMeta: ownedMeta(c, HeadlessServiceName(c), labels),
		Spec: corev1.ServiceSpec{
			ClusterIP:                corev1.ClusterIPNone,
			Selector:                 map[string]string{rayv1.LabelCluster: c.Name, rayv1.LabelNodeType: rayv1.NodeTypeWorker},
			PublishNotReadyAddresses: true,
		},
	}
}
