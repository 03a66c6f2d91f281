package raycluster

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
)

// groupByReplica groups the Pods of a worker group by replica. A Pod with an index but no replica
// name was created when the group had one host, and is a unit by itself. Pods with neither are
// ignored, because this controller did not create them.
func (p *plan) groupByReplica(workers []*corev1.Pod) []unit {
	of := map[string][]*corev1.Pod{}
	var all []unit
	for _, pod := range workers {
		switch r := pod.Labels[rayv1.LabelReplicaName]; {
		case r != "":
			of[r] = append(of[r], pod)
		case labelNumber(pod, rayv1.LabelReplicaIndex) >= 0:
			all = append(all, unit{[]*corev1.Pod{pod}, p.isLeaving(pod)})
		}
	}
	for _, r := range slices.Sorted(maps.Keys(of)) {
		all = append(all, unit{of[r], slices.ContainsFunc(of[r], p.isLeaving)})
	}
	return all
}

// removeIncompleteReplicas deletes the remaining Pods of incomplete replicas: their hosts only work together.
// It reports whether there were any.
func (p *plan) removeIncompleteReplicas(g *rayv1.WorkerGroupSpec, units []unit) bool {
	found := false
	for _, u := range units {
		because := p.replicaProblem(g, u)
		if because == "" || p.countStaying(u) == 0 {
			continue
		}
		found = true
		p.addReason("delete the remaining Pods of %s of group %s: %s", u.name(), g.GroupName, because)
		p.removeUnit(u, false, because)
	}
	return found
}

// replicaProblem returns why the Pods of a unit are not a replica of their group. If they are, it
// returns the empty string.
func (p *plan) replicaProblem(g *rayv1.WorkerGroupSpec, u unit) string {
	of := u.pods[0].Labels[rayv1.LabelReplicaName]
	switch {
	case !p.opts.Build.ReplicaIndex:
		return "" // no labels distinguish replicas from Pods
	case (of != "") != p.isMultiHost(g):
		// A single host of a multi-host replica is useless, as is a Pod without peers among
		// multi-host replicas. If left alone, it would stay beside its replacements.
		return fmt.Sprintf("it was created before numOfHosts of its group was %d", g.NumOfHosts)
	case p.isMultiHost(g) && (u.leaves || len(u.pods) != int(g.NumOfHosts)):
		return fmt.Sprintf("%d of the %d hosts of %s exist", p.countStaying(u), g.NumOfHosts, u.name())
	}
	return ""
}

func (p *plan) countStaying(u unit) int {
	n := 0
	for _, pod := range u.pods {
		if !p.isLeaving(pod) {
			n++
		}
	}
	return n
}
