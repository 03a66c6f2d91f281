package build

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
)

// DesiredReplicas returns the wanted number of replicas of a group and the number of their Pods.
func DesiredReplicas(g *rayv1.WorkerGroupSpec) (replicas, pods int32) {
	if g.Suspend != nil && *g.Suspend {
		return 0, 0
	}
	least, most := derefOr(g.MinReplicas, 0), derefOr(g.MaxReplicas, math.MaxInt32)
	replicas = derefOr(g.Replicas, least)
	switch {
	case replicas < least:
		replicas = least
	case replicas > most:
		replicas = most
	}
	return replicas, PodCount(replicas, g)
}

// PodCount returns the number of Pods of some replicas of a group, limited to the largest int32.
func PodCount(replicas int32, g *rayv1.WorkerGroupSpec) int32 {
	return int32(min(int64(replicas)*int64(max(g.NumOfHosts, 1)), math.MaxInt32))
}

func derefOr(p *int32, otherwise int32) int32 {
	if p == nil {
		return otherwise
	}
	return *p
}

// Total is the sum of the resources of all wanted Pods.
type Total struct{ CPU, Memory, GPU, TPU resource.Quantity }

// SumResources returns the resources of the head and the wanted workers. For each container,
// requests count, or else limits.
func SumResources(c *rayv1.RayCluster) Total {
	var t Total
	t.addTemplate(&c.Spec.HeadGroupSpec.Template, 1)
	for i := range c.Spec.WorkerGroupSpecs {
		g := &c.Spec.WorkerGroupSpecs[i]
		_, pods := DesiredReplicas(g)
		t.addTemplate(&g.Template, pods)
	}
	return t
}

func (t *Total) addTemplate(template *corev1.PodTemplateSpec, pods int32) {
	for i := range template.Spec.Containers {
		r := &template.Spec.Containers[i].Resources
		asked := corev1.ResourceList{}
		for name, q := range r.Limits {
			asked[name] = q
		}
		for name, q := range r.Requests {
			asked[name] = q
		}
		for name, q := range asked {
			if sum := t.quantityOf(name); sum != nil {
				q = q.DeepCopy()
				q.Mul(int64(pods))
				sum.Add(q)
			}
		}
	}
}

// quantityOf returns the sum that a resource is added to, or nil if it is not counted.
func (t *Total) quantityOf(name corev1.ResourceName) *resource.Quantity {
	switch {
	case name == corev1.ResourceCPU:
		return &t.CPU
	case name == corev1.ResourceMemory:
		return &t.Memory
	case name == resourceTPU:
		return &t.TPU
	case gpu.MatchString(string(name)):
		return &t.GPU
	}
	return nil
}
