package vcjob

import (
	"cmp"
	"fmt"
	"math"
	"strings"

	corev1 "k8s.io/api/core/v1"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
)

// Defaulted returns a copy of a spec with the defaults of the schema and of Volcano's
// mutating webhook. The stored object does not change.
func Defaulted(spec *batchv1.JobSpec) *batchv1.JobSpec {
	s := spec.DeepCopy()
	s.SchedulerName = cmp.Or(s.SchedulerName, batchv1.DefaultSchedulerName)
	s.Queue = cmp.Or(s.Queue, batchv1.DefaultQueue)
	s.MaxRetry = cmp.Or(s.MaxRetry, batchv1.DefaultMaxRetry)
	for i := range s.Tasks {
		defaultTask(i, &s.Tasks[i])
	}
	if s.MinAvailable == 0 {
		s.MinAvailable = saturate(sumMinAvailable(s))
	}
	for _, implied := range impliedPlugins(s) {
		if _, has := s.Plugins[implied]; !has {
			s.Plugins[implied] = nil
		}
	}
	return s
}

// taskName returns the name of the task at an index, or its default.
func taskName(i int, t *batchv1.TaskSpec) string {
	return cmp.Or(t.Name, fmt.Sprintf("%s%d", batchv1.DefaultTaskName, i))
}

func defaultTask(i int, t *batchv1.TaskSpec) {
	t.Name = taskName(i, t)
	t.MaxRetry = cmp.Or(t.MaxRetry, batchv1.DefaultMaxRetry)
	if t.MinAvailable == nil {
		least := t.Replicas
		if p := t.PartitionPolicy; p != nil && p.MinPartitions > 0 {
			least = saturate(int64(p.MinPartitions) * int64(p.PartitionSize))
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

// limitDevices sets missing limits of extended resources, such as nvidia.com/gpu, to the
// requests. The API server requires the limits, but examples of Volcano omit them.
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

// totalReplicas returns the replicas of all tasks.
func totalReplicas(s *batchv1.JobSpec) int32 { return saturate(sumReplicas(s)) }

func sumReplicas(s *batchv1.JobSpec) (n int64) {
	for i := range s.Tasks {
		n += int64(s.Tasks[i].Replicas)
	}
	return n
}

// sumMinAvailable returns the sum over the tasks of a spec with defaults.
func sumMinAvailable(s *batchv1.JobSpec) (n int64) {
	for i := range s.Tasks {
		n += int64(*s.Tasks[i].MinAvailable)
	}
	return n
}

// saturate returns n, limited to the range of an int32.
func saturate(n int64) int32 { return int32(min(max(n, math.MinInt32), math.MaxInt32)) }
