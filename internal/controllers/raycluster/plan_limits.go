package raycluster

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	"k8s4r.io/k8s4r/internal/controllers/kit"
	"k8s4r.io/k8s4r/internal/controllers/raycluster/build"
)

// maxReplicaBytes bounds the memory of the Pods of one multi-host replica, which one plan creates
// together.
const maxReplicaBytes = 16 * kit.MaxBatchBytes

// rejectExcess reports whether the plan ends because the spec has a number beyond the limits of a
// cluster. Existing Pods stay.
func (p *plan) rejectExcess() bool {
	p.out.Excess = describeExcess(p.c)
	if p.out.Excess == "" {
		return false
	}
	p.out.Problem = p.out.Excess
	p.out.Warnings = append(p.out.Warnings, build.Invalid{Reason: build.InvalidSpec, Message: p.out.Excess})
	p.addReason("create and delete no Pods: %s", p.out.Excess)
	return true
}

// describeExcess returns a message about a number that is beyond the limits. Empty if there is none.
// It repeats the limits of the schema, for definitions of another operator.
func describeExcess(c *rayv1.RayCluster) string {
	if n := len(c.Spec.WorkerGroupSpecs); n > rayv1.MaxGroups {
		return fmt.Sprintf("spec.workerGroupSpecs: %d groups, at most %d are allowed; divide them among several clusters", n, rayv1.MaxGroups)
	}
	var total int64
	for i := range c.Spec.WorkerGroupSpecs {
		g := &c.Spec.WorkerGroupSpecs[i]
		if why := describeGroupExcess(g); why != "" {
			return fmt.Sprintf("spec.workerGroupSpecs[%s]%s", g.GroupName, why)
		}
		replicas, _ := build.DesiredReplicas(g)
		total += int64(replicas) * int64(max(g.NumOfHosts, 1))
	}
	if total > rayv1.MaxWorkerPods {
		return fmt.Sprintf("spec.workerGroupSpecs: the cluster has %d worker Pods in total, at most %d are allowed; divide them among several clusters", total, rayv1.MaxWorkerPods)
	}
	return ""
}

// describeGroupExcess returns the end of the message about a group.
func describeGroupExcess(g *rayv1.WorkerGroupSpec) string {
	const divide = "divide the workers among several groups or clusters"
	if n := derefOr(g.Replicas, 0); n > rayv1.MaxGroupReplicas {
		return fmt.Sprintf(".replicas: %d is more than %d; %s", n, rayv1.MaxGroupReplicas, divide)
	}
	if n := derefOr(g.MinReplicas, 0); n > rayv1.MaxGroupReplicas {
		return fmt.Sprintf(".minReplicas: %d is more than %d; %s", n, rayv1.MaxGroupReplicas, divide)
	}
	if g.NumOfHosts > rayv1.MaxHosts {
		return fmt.Sprintf(".numOfHosts: %d is more than %d; divide the hosts among several replicas", g.NumOfHosts, rayv1.MaxHosts)
	}
	if g.NumOfHosts < 2 {
		return "" // a Pod that is too large by itself is refused by the API server
	}
	if bytes := int64(kit.MemorySize(&g.Template)) * int64(g.NumOfHosts); bytes > maxReplicaBytes {
		return fmt.Sprintf(": the Pods of a replica need %d MiB of the controller's memory, at most %d are allowed; shorten the template, or lower numOfHosts", bytes>>20, maxReplicaBytes>>20)
	}
	return ""
}

// podIndex finds Pods without searching all of them for each group or name.
type podIndex struct {
	names   map[string]slot
	workers map[string][]*corev1.Pod // by group, in the order of the Pods
	// templateHashes holds the current hash of each group that was needed.
	templateHashes map[string]string
}

func newPodIndex(pods []*corev1.Pod) podIndex {
	all := podIndex{names: make(map[string]slot, len(pods)), workers: map[string][]*corev1.Pod{}, templateHashes: map[string]string{}}
	for _, pod := range pods {
		all.names[pod.Name] = slotOf(pod)
		if group := pod.Labels[rayv1.LabelGroup]; !isHead(pod) {
			all.workers[group] = append(all.workers[group], pod)
		}
	}
	return all
}
