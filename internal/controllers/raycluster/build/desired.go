package build

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
)

// Desired is how many replicas a group shall have, and how many Pods these are.
func Desired(g *rayv1.WorkerGroupSpec) (replicas, pods int32) {
	if g.Suspend != nil && *g.Suspend {
		return 0, 0
	}
	least, most := value(g.MinReplicas, 0), value(g.MaxReplicas, math.MaxInt32)
	replicas = value(g.Replicas, least)
	switch {
	case replicas < least:
		replicas = least
	case replicas > most:
		replicas = most
	}
	return replicas, Pods(replicas, g)
}

// Pods is how many Pods some replicas of a group are, at the most what an int32 holds.
func Pods(replicas int32, g *rayv1.WorkerGroupSpec) int32 {
	return int32(min(int64(replicas)*int64(max(g.NumOfHosts, 1)), math.MaxInt32))
}

func value(p *int32, otherwise int32) int32 {
	if p == nil {
		return otherwise
	}
	return *p
}

// Total is what all Pods that there shall be ask for.
type Total struct{ CPU, Memory, GPU, TPU resource.Quantity }

// Resources of the head and of the desired workers. What a container requests counts, or
// else its limit.
func Resources(c *rayv1.RayCluster) Total {
	var t Total
	t.add(&c.Spec.HeadGroupSpec.Template, 1)
	for i := range c.Spec.WorkerGroupSpecs {
		g := &c.Spec.WorkerGroupSpecs[i]
		_, pods := Desired(g)
		t.add(&g.Template, pods)
	}
	return t
}

func (t *Total) add(template *corev1.PodTemplateSpec, pods int32) {
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
			if sum := t.of(name); sum != nil {
				q = q.DeepCopy()
				q.Mul(int64(pods))
				sum.Add(q)
			}
		}
	}
}

// of is the sum that a resource goes into. Nil: none.
func (t *Total) of(name corev1.ResourceName) *resource.Quantity {
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
