package taskgroup

import (
	"k8s4r.io/k8s4r/internal/controllers/kit"
	"k8s4r.io/k8s4r/internal/core/taskcounts"
)

// planCreates decides which replicas to create.
func (p *plan) planCreates() {
	if !taskcounts.CanStartTasks(p.Job) || p.Defect.isSet() {
		p.out.ReleaseReservations = true
		return
	}
	if p.now.Before(p.RetryAt) {
		p.requeueAt(p.RetryAt)
		return
	}
	if p.isSystem() {
		p.planSystemReplicas()
		return
	}
	if p.Group.HasUnobservedChange() {
		p.out.ReleaseReservations = true // the requests are for the old definition
	}
	var want []Replica
	for _, r := range p.missingReplicas() {
		// Robots are reserved by the rules of the group. A Task of a Rollout's revision has its own.
		if r.Target || len(r.Tasks) < p.Group.Spec.TasksPerReplica() {
			p.out.Complete = append(p.out.Complete, r)
		} else {
			want = append(want, r)
		}
	}
	idle := p.unboundReplicas(len(want))
	if len(want) == 0 || p.ReservationPending && idle == 0 {
		return
	}
	p.out.Reserve, p.out.CreateUnbound = want, idle
}

// maxReplicasPerPlan bounds the replicas of one plan. Admission rejects larger gangs.
const maxReplicasPerPlan = 128

// maxReplicas returns how many replicas this plan may create: fewer if their definition is large.
// A gang is created at once, and findDefect bounds its memory.
func (p *plan) maxReplicas() int {
	if p.Group.Spec.Gang {
		return maxReplicasPerPlan
	}
	return min(maxReplicasPerPlan, max(kit.MaxBatchBytes/max(p.DefinitionBytes, 1), 1))
}

// missingReplicas returns the replicas to create now, ordered by index.
func (p *plan) missingReplicas() []Replica {
	live := p.Tasks.Total - p.Tasks.TerminalCount() + p.CreatingTasks + len(p.out.CreateIndexes)
	room := max((p.Window-live)/p.Group.Spec.TasksPerReplica(), 0)
	if live == 0 {
		room = max(room, 1) // a replica larger than the window is created alone
	}
	if p.Group.Spec.Gang || p.isKeptRunning() {
		// A gang needs all of its robots at once, and Tasks that are kept running never
		// make room in the window.
		room = maxReplicasPerPlan
	}
	room = min(room, p.maxReplicas())
	want := p.IncompleteReplicas[:min(room, len(p.IncompleteReplicas))]
	for i := p.NextIndex; i < p.endIndex() && len(want) < room; i++ {
		r := Replica{Index: i, Target: p.Waves != nil && p.Waves.choose(p.Waves.unitOf(i, ""), otherSide)}
		r.Tasks = p.Waves.template(p.Group, r.Target).TaskDefinitions()
		want = append(want, r)
	}
	return want
}

// unboundReplicas returns how many replicas to create without a robot: none while
// replicas still find robots.
func (p *plan) unboundReplicas(missing int) int {
	n := min(p.LookAhead-p.UnboundTasks, missing)
	if p.Group.Spec.Gang {
		n = missing // a gang is placed only when all of its Tasks exist
	}
	if n <= 0 {
		return 0
	}
	if ready := p.LastBound.Add(boundGracePeriod); p.now.Before(ready) {
		p.requeueAt(ready)
		return 0
	}
	return n
}
