package taskgroup

import (
	"maps"
	"slices"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
)

// divideMembers splits Members into wanted, departed and surplus Tasks. If a robot has two
// replicas of a system or sysbatch job, the lower index stays.
func (p *plan) divideMembers() {
	p.replicaByRobot = map[string]int{}
	for _, m := range p.Members {
		switch {
		case p.isLeftover(m):
			p.leaving = append(p.leaving, m)
		case p.isWanted(m):
			p.staying = append(p.staying, m)
		case p.hasRunOnce(m):
			p.departed = append(p.departed, m)
		default:
			p.leaving = append(p.leaving, m)
		}
	}
}

// isWanted reports whether a Task belongs to a wanted replica. It records the replica of each
// robot in replicaByRobot, so it must be called in the order of Members.
func (p *plan) isWanted(m Member) bool {
	if !p.isSystem() {
		return m.IsIndex || m.Index < p.replicaCount()
	}
	if fit, matches := p.Fleet[m.Robot]; !matches || !p.Waves.suits(m, fit) {
		return false
	}
	index, hasReplica := p.replicaByRobot[m.Robot]
	if !hasReplica {
		p.replicaByRobot[m.Robot] = m.Index
	}
	return !hasReplica || index == m.Index
}

// coveredRobots returns how many robots have, or will have, a replica of the system or sysbatch job.
func (p *plan) coveredRobots() int {
	n := 0
	for robot, fit := range p.Fleet {
		if _, hasReplica := p.replicaByRobot[robot]; hasReplica || fit.Schedulable && fit.suits(p.Waves.chooseFor(robot)) {
			n++
		}
	}
	return n
}

// planSystemReplicas creates a replica with the lowest free index on each matching robot.
// It waits until the cache shows all created Tasks: only they show which robot has a
// replica already.
func (p *plan) planSystemReplicas() {
	if p.CreatingTasks > 0 {
		return
	}
	have, sides := map[int]map[string]bool{}, map[int]side{}
	for _, m := range p.Members {
		sides[m.Index] = sides[m.Index].addSide(m.side)
		if have[m.Index] == nil {
			have[m.Index] = map[string]bool{}
		}
		have[m.Index][m.Task] = true
	}
	free := 0
	for _, robot := range slices.Sorted(maps.Keys(p.Fleet)) {
		if !p.Fleet[robot].Schedulable || len(p.out.Complete) == maxReplicasPerPlan {
			continue
		}
		index, hasReplica := p.replicaByRobot[robot]
		if !hasReplica {
			if !p.Fleet[robot].suits(p.Waves.chooseFor(robot)) {
				continue
			}
			for have[free] != nil {
				free++
			}
			index = free
			free++
		}
		r := Replica{Index: index, Robot: robot, Target: p.Waves != nil && p.Waves.choose(p.Waves.unitOf(index, robot), sides[index])}
		if r.Tasks = p.missingTasks(r, have[index]); len(r.Tasks) > 0 {
			p.out.Complete = append(p.out.Complete, r)
		}
	}
}

// missingTasks returns the Tasks of a replica that do not exist.
func (p *plan) missingTasks(r Replica, have map[string]bool) (missing []*v1alpha1.TaskDefinition) {
	for _, def := range p.Waves.template(p.Group, r.Target).TaskDefinitions() {
		if !have[def.Name] {
			missing = append(missing, def)
		}
	}
	return missing
}

// planRemovals removes surplus Tasks. A Task that may be running is evicted first:
// after its deletion, nothing would show that it still runs when its replica is
// created again.
func (p *plan) planRemovals() {
	for _, m := range p.leaving {
		switch {
		case !p.canBeRunning(m.State):
			p.out.Delete = append(p.out.Delete, m.Name)
			p.out.Reasons = append(p.out.Reasons, "delete "+m.Name+": its replica is no longer wanted")
		case m.Evict != m.Attempt || m.EvictWaits:
			m.EvictWaits = false
			p.out.Evict = append(p.out.Evict, m)
			p.out.Reasons = append(p.out.Reasons, "evict "+m.Name+": its replica is no longer wanted")
		}
	}
}

// canBeRunning reports whether a robot may be running a Task in this state. A system
// Task on a lost robot is deleted at once: no other robot gets its replica, and the
// agent stops it after it reconnects. A sysbatch Task may have completed there.
func (w *Input) canBeRunning(s lifecycle.TaskState) bool {
	return isOnRobot(s) || s == lifecycle.TaskUnknown && (!w.isSystem() || w.isSysbatch() && !w.isClosed())
}
