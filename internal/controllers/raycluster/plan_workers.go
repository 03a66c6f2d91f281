package raycluster

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	"k8s4r.io/k8s4r/internal/controllers/raycluster/build"
)

// unit is created and deleted as a whole: a Pod, or the Pods of a multi-host replica.
type unit struct {
	pods []*corev1.Pod
	// leaves is set if at least one Pod is leaving, which makes the others useless.
	leaves bool
}

func (u unit) name() string {
	if r := u.pods[0].Labels[rayv1.LabelReplicaName]; r != "" {
		return "replica " + r
	}
	return "Pod " + u.pods[0].Name
}

// deleteStrayWorkers deletes the workers of groups that are no longer in the spec.
func (p *plan) deleteStrayWorkers() {
	groups := map[string]bool{}
	for i := range p.c.Spec.WorkerGroupSpecs {
		groups[p.c.Spec.WorkerGroupSpecs[i].GroupName] = true
	}
	for _, pod := range p.Pods {
		g := pod.Labels[rayv1.LabelGroup]
		if isHead(pod) || g == "" || groups[g] || p.isLeaving(pod) {
			continue
		}
		p.addReason("delete Pod %s: group %s is not in the spec", pod.Name, g)
		p.deletePod(pod, Deletion{
			Event:  newDeletedPodEvent(ReasonDeletedWorkerPod, "Deleted worker Pod %s/%s: its worker group %s is no longer in the spec", pod, g),
			Failed: rayv1.ReasonFailedDeleteWorkerPod,
		})
	}
}

// hasUnseenPods reports whether Pods of a group were created that are not in the cache yet.
func (p *plan) hasUnseenPods(g *rayv1.WorkerGroupSpec) bool {
	return p.hasPendingCreate(build.WorkerNamePrefix(p.c, g))
}

// presentWorkers returns the Pods of a group that exist.
func (p *plan) presentWorkers(g *rayv1.WorkerGroupSpec) []*corev1.Pod {
	var all []*corev1.Pod
	for _, pod := range p.index.workers[g.GroupName] {
		if p.isPresent(pod) {
			all = append(all, pod)
		}
	}
	return all
}

// presentUnits returns the units of a group that exist.
func (p *plan) presentUnits(g *rayv1.WorkerGroupSpec) []unit {
	workers := p.presentWorkers(g)
	if p.isMultiHost(g) {
		return p.groupByReplica(workers)
	}
	all := make([]unit, len(workers))
	for i, pod := range workers {
		all[i] = unit{[]*corev1.Pod{pod}, p.isLeaving(pod)}
	}
	return all
}

// isMultiHost reports whether a replica of the group consists of several Pods.
func (p *plan) isMultiHost(g *rayv1.WorkerGroupSpec) bool {
	return g.NumOfHosts > 1 && p.opts.Build.ReplicaIndex
}

// planGroup plans the creations and deletions for one worker group.
func (p *plan) planGroup(g *rayv1.WorkerGroupSpec) {
	switch {
	case p.hasUnseenPods(g):
		return // the count would be wrong without them
	case g.Suspend != nil && *g.Suspend:
		event := Event{corev1.EventTypeNormal, ReasonDeletedWorkerPod, actionDelete,
			fmt.Sprintf("Deleted all Pods of worker group %s of %s/%s: the group is suspended", g.GroupName, p.c.Namespace, p.c.Name)}
		if p.removeAll(p.presentWorkers(g), rayv1.ReasonFailedDeleteWorkerPod, event) {
			p.addReason("delete all Pods of group %s: it is suspended", g.GroupName)
		}
		return
	}
	units := p.presentUnits(g)
	if p.removeIncompleteReplicas(g, units) {
		units = p.presentUnits(g)
	}
	if p.removeUnhealthy(g, units) {
		return // replacements are planned once they are gone
	}
	p.removeWorkersToDelete(g, units)
	p.scaleGroup(g, p.presentUnits(g))
}

// removeUnhealthy deletes units that cannot recover. It reports whether there were any.
func (p *plan) removeUnhealthy(g *rayv1.WorkerGroupSpec, units []unit) bool {
	found := false
	for _, u := range units {
		i := slices.IndexFunc(u.pods, isUnhealthy)
		if i < 0 || u.leaves || p.shouldDelayDeletion(u.pods[i]) {
			continue
		}
		found = true
		p.addReason("delete %s of group %s: %s", u.name(), g.GroupName, describePodState(u.pods[i]))
		p.removeUnit(u, true, describePodState(u.pods[i]))
	}
	return found
}

// removeUnit deletes all Pods of a unit, with the reason in the event.
func (p *plan) removeUnit(u unit, retry bool, because string) {
	d := Deletion{Retry: retry}
	d.Failed = rayv1.ReasonFailedDeleteWorkerPod
	for _, pod := range u.pods {
		d.Event = newDeletedPodEvent(ReasonDeletedWorkerPod, "Deleted worker Pod %s/%s; %s", pod, because)
		p.deletePod(pod, d)
	}
}

// removeWorkersToDelete deletes the units in workersToDelete. Names of Pods in other groups are ignored.
func (p *plan) removeWorkersToDelete(g *rayv1.WorkerGroupSpec, units []unit) {
	names := make(map[string]bool, len(g.ScaleStrategy.WorkersToDelete))
	for _, name := range g.ScaleStrategy.WorkersToDelete {
		names[name] = true
	}
	for _, u := range units {
		chosen := slices.ContainsFunc(u.pods, func(pod *corev1.Pod) bool { return names[pod.Name] })
		if chosen && !u.leaves {
			p.addReason("delete %s of group %s: it is in workersToDelete", u.name(), g.GroupName)
			p.removeHealthyUnit(u, "Deleted pod %s/%s")
		}
	}
}

// scaleGroup creates missing units and deletes surplus ones. A unit that is leaving still counts
// for creation: its node may have no room until it is gone.
func (p *plan) scaleGroup(g *rayv1.WorkerGroupSpec, units []unit) {
	replicas, pods := build.DesiredReplicas(g)
	if p.isMultiHost(g) && int64(replicas)*int64(g.NumOfHosts) != int64(pods) {
		p.out.Problem = fmt.Sprintf("worker group %s: the number of desired worker Pods (%d) must be a multiple of numOfHosts (%d)", g.GroupName, pods, g.NumOfHosts)
		return
	}
	if !p.isMultiHost(g) {
		replicas = pods
	}
	var stay []unit
	for _, u := range units {
		if !u.leaves {
			stay = append(stay, u)
		}
	}
	if n := int(replicas) - len(units); n > 0 {
		p.addUnits(g, units, n)
	}
	if n := len(stay) - int(replicas); n > 0 {
		p.removeUnits(g, stay, n)
	}
}

// addUnits creates n units, each at the lowest free index, up to the batch of the plan. The generation
// of the group is raised only when no missing unit can be created without: otherwise a create of an
// earlier controller could arrive beside one of the new generation in its slot.
func (p *plan) addUnits(g *rayv1.WorkerGroupSpec, units []unit, n int) {
	used := map[int]bool{}
	for _, u := range units {
		for _, pod := range u.pods {
			used[slotOf(pod).index] = true
		}
	}
	if p.batch.IsFull() {
		return
	}
	template := build.NewWorkerTemplate(&p.opts.Build, p.c, g)
	created := false
	for index := 0; n > 0 && !p.batch.IsFull(); index++ {
		if used[index] {
			continue
		}
		n--
		if p.createUnit(g, template, index) {
			created = true
		}
	}
	if !created {
		p.raiseGeneration(g.GroupName)
	}
}

// createUnit creates a Pod, or all Pods of a multi-host replica. It reports false, and creates none,
// if one of them needs a name of the next generation.
func (p *plan) createUnit(g *rayv1.WorkerGroupSpec, template *build.WorkerTemplate, index int) bool {
	s := slot{g.GroupName, index}
	r := build.Replica{Index: index}
	hosts := 1
	if p.isMultiHost(g) {
		hosts = int(g.NumOfHosts)
		r.Name = build.ReplicaName(g, nameSuffix(p.c.UID, s, -1, p.Generations[s.group], 0))
	}
	names := make([]string, hosts)
	for host := range names {
		name := p.freePodName(build.WorkerNamePrefix(p.c, g), s, host)
		if p.wasNameUsed(s, name) {
			return false
		}
		p.plannedNames[name], names[host] = true, name
	}
	for r.Host = range hosts {
		pod := template.Pod(r)
		pod.Name, pod.GenerateName = names[r.Host], ""
		p.createPod(pod)
	}
	return true
}

// removeUnits deletes n units, unless the autoscaler chooses them.
func (p *plan) removeUnits(g *rayv1.WorkerGroupSpec, stay []unit, n int) {
	if hasAutoscaler(p.c) && !p.opts.Build.RandomDelete {
		return
	}
	slices.SortFunc(stay, func(a, b unit) int { return compareWorth(worthOfAll(a.pods), worthOfAll(b.pods)) })
	for _, u := range stay[:n] {
		p.addReason("delete %s: group %s has %d too many", u.name(), g.GroupName, n)
		p.removeHealthyUnit(u, "Deleted Pod %s/%s")
	}
}

// removeHealthyUnit deletes all Pods of a healthy unit, with one event for each.
func (p *plan) removeHealthyUnit(u unit, format string) {
	for _, pod := range u.pods {
		p.deletePod(pod, Deletion{Event: newDeletedPodEvent(ReasonDeletedWorkerPod, format, pod), Failed: rayv1.ReasonFailedDeleteWorkerPod})
	}
}

func hasAutoscaler(c *rayv1.RayCluster) bool {
	return c.Spec.EnableInTreeAutoscaling != nil && *c.Spec.EnableInTreeAutoscaling
}
