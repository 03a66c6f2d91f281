package vcjob

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
)

// withSvc are the plugins that need the one that gives Pods their names.
var withSvc = []string{"tensorflow", "mpi", "pytorch", "ray"}

// Defaulted is a spec with its defaults: those that the schema gives, and those
// that the original's mutating webhook writes into the object. The object stays
// as its user wrote it.
func Defaulted(spec *batchv1.JobSpec) *batchv1.JobSpec {
	s := spec.DeepCopy()
	s.SchedulerName = or(s.SchedulerName, batchv1.DefaultSchedulerName)
	s.Queue = or(s.Queue, batchv1.DefaultQueue)
	s.MaxRetry = or(s.MaxRetry, batchv1.DefaultMaxRetry)
	for i := range s.Tasks {
		defaultTask(i, &s.Tasks[i])
	}
	if s.MinAvailable == 0 {
		for i := range s.Tasks {
			s.MinAvailable += *s.Tasks[i].MinAvailable
		}
	}
	for _, plugin := range withSvc {
		_, wants := s.Plugins[plugin]
		if _, has := s.Plugins[pluginSvc]; wants && !has {
			s.Plugins[pluginSvc] = nil
		}
	}
	return s
}

func defaultTask(i int, t *batchv1.TaskSpec) {
	t.Name = or(t.Name, fmt.Sprintf("%s%d", batchv1.DefaultTaskName, i))
	t.MaxRetry = or(t.MaxRetry, batchv1.DefaultMaxRetry)
	if t.MinAvailable == nil {
		least := t.Replicas
		if p := t.PartitionPolicy; p != nil && p.MinPartitions > 0 {
			least = p.MinPartitions * p.PartitionSize
		}
		t.MinAvailable = &least
	}
	if pod := &t.Template.Spec; pod.HostNetwork && pod.DNSPolicy == "" {
		pod.DNSPolicy = corev1.DNSClusterFirstWithHostNet
	}
	for _, containers := range [][]corev1.Container{t.Template.Spec.InitContainers, t.Template.Spec.Containers} {
		for i := range containers {
			limitDevices(&containers[i].Resources)
		}
	}
}

// limitDevices makes limits of requests for what cannot be lent twice, such as
// nvidia.com/gpu. The API server takes no Pod without, and Volcano's own document
// writes them so.
func limitDevices(r *corev1.ResourceRequirements) {
	for name, n := range r.Requests {
		if !strings.Contains(string(name), "/") || strings.Contains(string(name), "kubernetes.io/") {
			continue
		}
		if _, has := r.Limits[name]; has {
			continue
		}
		if r.Limits == nil {
			r.Limits = corev1.ResourceList{}
		}
		r.Limits[name] = n
	}
}

// or is v, or what stands for its zero value.
func or[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

// replicas of all tasks.
func replicas(s *batchv1.JobSpec) int32 {
	var n int32
	for i := range s.Tasks {
		n += s.Tasks[i].Replicas
	}
	return n
}
