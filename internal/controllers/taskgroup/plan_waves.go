package taskgroup

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/rollout"
)

// planWaves changes the Tasks of the units that a Rollout has reached. Waiting Tasks change in place, and
// running ones are evicted, as many units at a time as may be changing. Unlike planRollout it goes on after
// failures, because the Rollout's controller decides when to stop.
func (p *plan) planWaves() {
	var next [][]Member
	for _, replica := range splitByReplica(p.staying) {
		obstacle, isChanging := p.obstacleOf(replica), p.isUnitChanging(replica)
		p.recordObstacle(replica, obstacle)
		mayRevise := isChanging || obstacle.isNone()
		if mayRevise {
			p.planReplacements(replica)
		}
		p.planWaveRevisions(replica, mayRevise)
		switch {
		case isChanging:
			p.rollout.changing = append(p.rollout.changing, replica[0].Index)
			if obstacle.isNone() {
				p.interruptUnit(replica)
			}
		case p.isReachable(replica) && p.needsInterruption(replica) && obstacle.isNone():
			next = append(next, replica)
		}
	}
	p.sortByTurn(next)
	free := max(p.maxChanging()-len(p.rollout.changing)-p.startingUnits(), 0)
	if !p.canEvict() || !p.isTargetObserved() {
		free = 0
	}
	for _, replica := range next[:min(free, len(next))] {
		p.interruptUnit(replica)
		p.rollout.changing = append(p.rollout.changing, replica[0].Index)
	}
}

// decisionFor returns which definition a replica should have.
func (p *plan) decisionFor(replica []Member) rollout.Decision {
	return p.Waves.decide(p.unitOf(replica))
}

func (p *plan) unitOf(replica []Member) rollout.Unit {
	return p.Waves.unitOf(replica[0].Index, replica[0].Robot)
}

// isTargetObserved reports whether the status shows the revisions of both definitions. The task controller
// compares the Tasks of a replica by them, so no Task is changed earlier.
func (p *plan) isTargetObserved() bool {
	return !p.Group.HasUnobservedChange() && maps.Equal(p.Group.Status.RolloutRevisions, p.rolloutRevisions())
}

// rolloutRevisions returns status.rolloutRevisions.
func (p *plan) rolloutRevisions() map[string]string {
	if p.Waves == nil || !p.Waves.isDifferent() {
		return nil
	}
	return p.Waves.TargetRevisions
}

// planReplacements deletes ended Tasks that are to be created again, by the definition that their unit
// should have.
func (p *plan) planReplacements(replica []Member) {
	if !p.canEvict() {
		return
	}
	for _, m := range replica {
		if m.isReplaced {
			p.out.Delete = append(p.out.Delete, m.Name)
			p.out.Reasons = append(p.out.Reasons, "delete "+m.Name+": "+describeReplacement(m))
		}
	}
}

func describeReplacement(m Member) string {
	switch {
	case m.undefined:
		return "its definition was removed"
	case m.Outdated:
		return "it has ended with another definition"
	}
	return "its wave is tried again"
}

// planWaveRevisions updates waiting Tasks to the definition that they should have, if mayRevise. It releases
// those that were evicted for a change which no longer applies.
func (p *plan) planWaveRevisions(replica []Member, mayRevise bool) {
	target, align := p.alignment(replica)
	for _, m := range replica {
		isOutdated := m.Outdated || align && isWaiting(m.State) && p.differsFrom(m, target)
		if isOutdated && !m.State.IsTerminal() {
			p.rollout.outdated++
		}
		switch {
		case !isWaiting(m.State) || m.LostAttempt != 0 || !p.canRevise():
		case isOutdated && mayRevise:
			p.changeWaiting(m, target)
		case isOutdated: // its replica waits as a whole
		case m.isHeld:
			p.out.Revise = append(p.out.Revise, Revision{Name: m.Name, Forget: true, Keep: true})
			p.out.Reasons = append(p.out.Reasons, "start "+m.Name+" again with the definition that it has")
		}
	}
}

// changeWaiting gives a waiting Task one of the definitions, or deletes it if that has no such task.
func (p *plan) changeWaiting(m Member, target bool) {
	switch {
	case !p.isTargetObserved():
	case m.undefined:
		p.out.Delete = append(p.out.Delete, m.Name)
		p.out.Reasons = append(p.out.Reasons, "delete "+m.Name+": "+describeReplacement(m))
	default:
		p.out.Revise = append(p.out.Revise, Revision{Name: m.Name, Forget: !p.isUnfinished(m), Target: target})
		p.out.Reasons = append(p.out.Reasons, fmt.Sprintf("update %s to the %s", m.Name, describeSide(target)))
	}
}

func describeSide(target bool) string {
	if target {
		return "definition of the Rollout"
	}
	return "current definition"
}

// alignment returns the definition that the waiting Tasks of a replica should have. align is true if they
// should have it although their unit keeps what it has: it was being changed, and its tasks would wait
// forever for init tasks of another definition.
func (p *plan) alignment(replica []Member) (target, align bool) {
	switch p.decisionFor(replica) {
	case rollout.Target:
		return true, false
	case rollout.Base:
		return false, false
	case rollout.Keep:
	}
	if !p.alignsReplicas() {
		return false, false
	}
	var has side
	for _, m := range replica {
		has = has.addSide(m.side)
	}
	return has == targetSide, has == targetSide || has == baseSide
}

// alignsReplicas reports whether the Tasks of a replica need the same definition, because some wait for
// others, although a Rollout may stop between them.
func (w *Input) alignsReplicas() bool {
	return w.Waves != nil && (len(w.Group.Spec.InitTasks) > 0 || w.Waves.Target != nil && len(w.Waves.Target.InitTasks) > 0)
}

// differsFrom reports whether a Task has another definition than one of both. A task that this one does not
// define keeps what it has.
func (p *plan) differsFrom(m Member, target bool) bool {
	_, isDefined := p.Waves.revisionsOf(target)[m.Task]
	switch {
	case !isDefined || m.side == bothSides:
		return false
	case target:
		return m.side != targetSide
	}
	return m.side != baseSide
}

// needsInterruption reports whether a replica must be interrupted to be changed.
func (p *plan) needsInterruption(replica []Member) bool {
	return len(outdatedOnRobot(replica)) > 0 || slices.ContainsFunc(replica, p.runsOnceMore)
}

// runsOnceMore reports whether a Task has completed with another definition, in a job whose tasks run once.
// It counts as running: to change it is to run the new definition.
func (p *plan) runsOnceMore(m Member) bool {
	return !p.isKeptRunning() && m.Outdated && !m.isReplaced && m.State == lifecycle.TaskCompleted
}

// interruptUnit evicts the running Tasks of a replica that should have another definition, and deletes those
// that run once more.
func (p *plan) interruptUnit(replica []Member) {
	if !p.isTargetObserved() {
		return
	}
	p.planEvictions(replica)
	for _, m := range replica {
		if p.canEvict() && p.runsOnceMore(m) {
			p.out.Delete = append(p.out.Delete, m.Name)
			p.out.Reasons = append(p.out.Reasons, "delete "+m.Name+": it runs once more, with the "+describeSide(p.decisionFor(replica) == rollout.Target))
		}
	}
}

// isUnitChanging reports whether a replica counts against the limit: it was interrupted for another
// definition, or has the Rollout's, and is neither healthy nor failed yet. A unit out of contact never does.
func (p *plan) isUnitChanging(replica []Member) bool {
	return p.isReachable(replica) && slices.ContainsFunc(replica, func(m Member) bool { return p.isTaskChanging(replica, m) })
}

func (p *plan) isTaskChanging(replica []Member, m Member) bool {
	switch {
	case m.State == lifecycle.TaskUnknown || m.isReplaced || m.State == lifecycle.TaskFailed:
		return false
	case m.Outdated:
		return m.Evict > 0 && !m.State.IsTerminal() && p.isUnfinished(m)
	case !m.IsRevised && m.side != targetSide && p.isKeptRunning():
		return m.isHeld // its eviction is being withdrawn
	case isWaiting(m.State) && m.Evict == 0 && !p.isSystem():
		return false // it was not interrupted, and may wait long for a robot
	}
	failsAt := m.ChangedAt.Add(p.unitDeadline())
	if !p.now.Before(failsAt) || p.isHealthyFor(m, p.healthyTime(replica)) {
		return false
	}
	p.requeueAt(failsAt)
	return true
}

// unitDeadline returns after which time a unit has failed that is not healthy.
func (p *plan) unitDeadline() time.Duration {
	if p.Waves.Rollout == nil {
		return rollout.DefaultDeadline
	}
	return rollout.Deadline(p.Waves.Rollout)
}

// healthyTime returns how long a replica must run until the next one may change. A wave asks for more only of
// its own revision: the way back is to one that is known to work.
func (p *plan) healthyTime(replica []Member) time.Duration {
	r := p.Waves.Rollout
	if p.decisionFor(replica) != rollout.Target {
		return p.minHealthyTime()
	}
	if i := rollout.FindWave(r, p.unitOf(replica)); i >= 0 {
		return max(p.minHealthyTime(), r.Spec.Waves[i].HealthyFor.Value())
	}
	return p.minHealthyTime()
}

// startingUnits returns how many replicas are being created that may replace some which were deleted for
// another definition.
func (p *plan) startingUnits() int {
	n := (p.CreatingTasks + p.Group.Spec.TasksPerReplica() - 1) / p.Group.Spec.TasksPerReplica()
	for _, r := range p.out.Complete {
		if p.isSystem() && (r.Target || !p.isKeptRunning()) {
			n++
		}
	}
	return n
}

// maxChanging returns how many units of the group may be changing at the same time.
func (p *plan) maxChanging() int {
	r := p.Waves.Rollout
	if r == nil || r.Spec.MaxUnavailable == nil {
		return p.maxParallel()
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(r.Spec.MaxUnavailable, p.replicaCount(), true)
	if err != nil {
		n = 1 // the API server admits only numbers and percentages
	}
	if u := p.Group.Spec.Update; u != nil && u.MaxParallel > 0 {
		n = min(n, int(u.MaxParallel))
	}
	return max(n, 1)
}
