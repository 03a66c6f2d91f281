package raycluster

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	"k8s4r.io/k8s4r/internal/controllers/raycluster/build"
)

// unit is what comes and goes together: a Pod, or a replica of several.
type unit struct {
	pods []*corev1.Pod
	// leaves: at least one Pod is on its way out, so the rest is of no use.
	leaves bool
}

func (u unit) name() string {
	if r := u.pods[0].Labels[rayv1.LabelReplicaName]; r != "" {
		return "replica " + r
	}
	return "Pod " + u.pods[0].Name
}

func (u unit) outdated(hash string) bool {
	return slices.ContainsFunc(u.pods, func(pod *corev1.Pod) bool { return outdated(pod, hash) })
}

// strays deletes the workers of groups that the spec does not have any more.
func (p *plan) strays() {
	groups := map[string]bool{}
	for i := range p.c.Spec.WorkerGroupSpecs {
		groups[p.c.Spec.WorkerGroupSpecs[i].GroupName] = true
	}
	for _, pod := range p.Pods {
		g := pod.Labels[rayv1.LabelGroup]
		if isHead(pod) || g == "" || groups[g] || p.leaves(pod) {
			continue
		}
		p.why("delete Pod %s: there is no group %s any more", pod.Name, g)
		p.remove(pod, Deletion{
			Event:  deletedPod(ReasonDeletedWorkerPod, "Deleted worker Pod %s/%s: its worker group %s is not in the spec any more", pod, g),
			Failed: rayv1.ReasonFailedDeleteWorkerPod,
		})
	}
}

// waits tells whether Pods of a group were created that do not show yet.
func (p *plan) waits(g *rayv1.WorkerGroupSpec) bool {
	return p.creatingLike(build.WorkerNamePrefix(p.c, g))
}

// workers are the Pods of a group that are there.
func (p *plan) workers(g *rayv1.WorkerGroupSpec) []*corev1.Pod {
	var all []*corev1.Pod
	for _, pod := range p.Pods {
		if !isHead(pod) && pod.Labels[rayv1.LabelGroup] == g.GroupName && p.counts(pod) {
			all = append(all, pod)
		}
	}
	return all
}

// units of a group that are there.
func (p *plan) units(g *rayv1.WorkerGroupSpec) []unit {
	workers := p.workers(g)
	if p.several(g) {
		return p.replicas(workers)
	}
	all := make([]unit, len(workers))
	for i, pod := range workers {
		all[i] = unit{[]*corev1.Pod{pod}, p.leaves(pod)}
	}
	return all
}

// several tells whether a replica of a group is several Pods.
func (p *plan) several(g *rayv1.WorkerGroupSpec) bool {
	return g.NumOfHosts > 1 && p.opts.Build.ReplicaIndex
}

// group brings the workers of one group to what they shall be.
func (p *plan) group(g *rayv1.WorkerGroupSpec) {
	switch {
	case p.waits(g):
		return // it would be judged without them
	case g.Suspend != nil && *g.Suspend:
		say := Event{corev1.EventTypeNormal, ReasonDeletedPod, actionDelete,
			fmt.Sprintf("Deleted all Pods of worker group %s of %s/%s: the group is suspended", g.GroupName, p.c.Namespace, p.c.Name)}
		if p.removeAll(p.workers(g), rayv1.ReasonFailedDeleteWorkerPod, say) {
			p.why("delete all Pods of group %s: it is suspended", g.GroupName)
		}
		return
	}
	units := p.units(g)
	if p.removeBroken(g, units) {
		units = p.units(g)
	}
	if p.removeUnhealthy(g, units) {
		return // what replaces them is decided once they are gone
	}
	p.removeChosen(g, units)
	p.scale(g, p.units(g))
}

// removeUnhealthy deletes what will never work again. It tells whether there was any.
func (p *plan) removeUnhealthy(g *rayv1.WorkerGroupSpec, units []unit) bool {
	found := false
	for _, u := range units {
		i := slices.IndexFunc(u.pods, unhealthy)
		if i < 0 || u.leaves || p.patience(u.pods[i]) {
			continue
		}
		found = true
		p.why("delete %s of group %s: %s", u.name(), g.GroupName, state(u.pods[i]))
		p.removeUnit(u, true, state(u.pods[i]))
	}
	return found
}

// removeUnit deletes all Pods of a unit.
func (p *plan) removeUnit(u unit, retry bool, because string) {
	d := Deletion{Retry: retry}
	d.Failed = rayv1.ReasonFailedDeleteWorkerPod
	for _, pod := range u.pods {
		d.Event = deletedPod(ReasonDeletedWorkerPod, "Deleted worker Pod %s/%s; %s", pod, because)
		p.remove(pod, d)
	}
}

// removeChosen deletes what the autoscaler, or a user, has chosen. Names that are not of
// this group are left alone: a name alone says nothing about whose Pod it is.
func (p *plan) removeChosen(g *rayv1.WorkerGroupSpec, units []unit) {
	for _, u := range units {
		chosen := slices.ContainsFunc(u.pods, func(pod *corev1.Pod) bool {
			return slices.Contains(g.ScaleStrategy.WorkersToDelete, pod.Name)
		})
		if chosen && !u.leaves {
			p.why("delete %s of group %s: it is in workersToDelete", u.name(), g.GroupName)
			p.removeQuietly(u, "Deleted pod %s/%s")
		}
	}
}

// scale creates what is missing and deletes what is too many. What is on its way out
// still has its place: its node may have no room before it is gone.
func (p *plan) scale(g *rayv1.WorkerGroupSpec, units []unit) {
	replicas, pods := build.Desired(g)
	if p.several(g) && int64(replicas)*int64(g.NumOfHosts) != int64(pods) {
		p.out.Fault = fmt.Sprintf("worker group %s: the %d desired worker Pods are not a multiple of numOfHosts, which is %d", g.GroupName, pods, g.NumOfHosts)
		return
	}
	if !p.several(g) {
		replicas = pods
	}
	var stay []unit
	for _, u := range units {
		if !u.leaves {
			stay = append(stay, u)
		}
	}
	if n := int(replicas) - len(units); n > 0 {
		p.grow(g, units, n)
	}
	if n := len(stay) - int(replicas); n > 0 {
		p.shrink(g, stay, n)
	}
}

// grow creates n units more, each in the lowest place that is free.
func (p *plan) grow(g *rayv1.WorkerGroupSpec, units []unit, n int) {
	used := map[int]bool{}
	for _, u := range units {
		for _, pod := range u.pods {
			used[slotOf(pod).index] = true
		}
	}
	for index := 0; n > 0; index++ {
		if used[index] {
			continue
		}
		n--
		p.createUnit(g, index)
	}
}

// createUnit creates a Pod, or all Pods of a replica.
func (p *plan) createUnit(g *rayv1.WorkerGroupSpec, index int) {
	s := slot{g.GroupName, index}
	r := build.Replica{Index: index}
	hosts := 1
	if p.several(g) {
		hosts = int(g.NumOfHosts)
		r.Name = build.ReplicaName(g, suffix(p.c.UID, s, -1, p.Refilled[s], 0))
	}
	pods := make([]*corev1.Pod, hosts)
	for r.Host = range hosts {
		pod := build.WorkerPod(&p.opts.Build, p.c, g, r)
		if pod.Name, pod.GenerateName = p.free(pod.GenerateName, s, r.Host), ""; p.used(s, pod.Name) {
			p.refill(s)
			return
		}
		p.named[pod.Name] = true
		pods[r.Host] = pod
	}
	for _, pod := range pods {
		p.create(pod)
	}
}

// shrink deletes n units, unless the autoscaler chooses them.
func (p *plan) shrink(g *rayv1.WorkerGroupSpec, stay []unit, n int) {
	if autoscaled(p.c) && !p.opts.Build.RandomDelete {
		return
	}
	slices.SortFunc(stay, func(a, b unit) int { return compare(worthOfAll(a.pods), worthOfAll(b.pods)) })
	for _, u := range stay[:n] {
		p.why("delete %s: group %s has %d too many", u.name(), g.GroupName, n)
		p.removeQuietly(u, "Deleted Pod %s/%s")
	}
}

// removeQuietly deletes all Pods of a unit that has done nothing wrong.
func (p *plan) removeQuietly(u unit, said string) {
	for _, pod := range u.pods {
		p.remove(pod, Deletion{Event: deletedPod(ReasonDeletedWorkerPod, said, pod), Failed: rayv1.ReasonFailedDeleteWorkerPod})
	}
}

func autoscaled(c *rayv1.RayCluster) bool {
	return c.Spec.EnableInTreeAutoscaling != nil && *c.Spec.EnableInTreeAutoscaling
}
