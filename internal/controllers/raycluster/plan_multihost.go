package raycluster

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
)

// replicas groups the Pods of a group by replica. A Pod that has a number and says no
// replica was all of it when the group had one host. Pods that say neither are not
// counted: the controller has not made them so.
func (p *plan) replicas(workers []*corev1.Pod) []unit {
	of := map[string][]*corev1.Pod{}
	var all []unit
	for _, pod := range workers {
		switch r := pod.Labels[rayv1.LabelReplicaName]; {
		case r != "":
			of[r] = append(of[r], pod)
		case number(pod, rayv1.LabelReplicaIndex) >= 0:
			all = append(all, unit{[]*corev1.Pod{pod}, p.leaves(pod)})
		}
	}
	for _, r := range slices.Sorted(maps.Keys(of)) {
		all = append(all, unit{of[r], slices.ContainsFunc(of[r], p.leaves)})
	}
	return all
}

// removeBroken deletes what is left of replicas that are not whole: their hosts work
// together or not at all. It tells whether there were any.
func (p *plan) removeBroken(g *rayv1.WorkerGroupSpec, units []unit) bool {
	found := false
	for _, u := range units {
		because := p.broken(g, u)
		if because == "" || p.staying(u) == 0 {
			continue
		}
		found = true
		p.why("delete what is left of %s of group %s: %s", u.name(), g.GroupName, because)
		p.removeUnit(u, false, because)
	}
	return found
}

// broken is why the Pods of a unit are no replica of their group. Empty: they are one.
func (p *plan) broken(g *rayv1.WorkerGroupSpec, u unit) string {
	of := u.pods[0].Labels[rayv1.LabelReplicaName]
	switch {
	case !p.opts.Build.ReplicaIndex:
		return "" // nothing tells replicas from Pods
	case (of != "") != p.several(g):
		// A host of several is of no use alone, nor is a Pod among them that knows of
		// no others. Left alone, it stayed beside its successors for ever.
		return fmt.Sprintf("it was created before numOfHosts of its group was %d", g.NumOfHosts)
	case p.several(g) && (u.leaves || len(u.pods) != int(g.NumOfHosts)):
		return fmt.Sprintf("%d of the %d hosts of %s are there", p.staying(u), g.NumOfHosts, u.name())
	}
	return ""
}

func (p *plan) staying(u unit) int {
	n := 0
	for _, pod := range u.pods {
		if !p.leaves(pod) {
			n++
		}
	}
	return n
}
