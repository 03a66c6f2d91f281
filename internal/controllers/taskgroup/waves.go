package taskgroup

import (
	"maps"

	"k8s.io/apimachinery/pkg/types"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/rollout"
)

// Waves decides which definition each Task of a group should have whose Job has the strategy Rollout. The
// base definition is that of the group, the target definition that of the Rollout's revision. Tasks may
// also have other revisions, which they keep until a Rollout reaches them.
type Waves struct {
	// Rollout is the effective one. If nil, all Tasks keep what they have.
	Rollout *v1alpha1.Rollout
	// Target is the template of the group with the Rollout's revision. If nil, that revision is not known,
	// and no Task is changed to it.
	Target *v1alpha1.TaskGroupTemplate
	// TargetRevisions are the revisions of Target, by task name.
	TargetRevisions map[string]string
	// BaseRevisions are those of the group.
	BaseRevisions map[string]string
	// Group is the name of the group in its Job.
	Group string
	// Fleet are the robots of a system job, which are its units. Nil for other jobs, whose units are replicas.
	Fleet map[string]RobotMatch
	// fleetVersion is the version of Fleet.
	fleetVersion fleetVersion
	// targetUID is that of the ControllerRevision of Target.
	targetUID types.UID
}

// newWaves returns the Waves of a group without a target definition. It returns nil if its Job, which may be
// nil, does not have the strategy Rollout.
func newWaves(g *v1alpha1.TaskGroup, j *v1alpha1.Job, effective *v1alpha1.Rollout) *Waves {
	if !rollout.IsUsedBy(j) {
		return nil
	}
	return &Waves{Group: g.Spec.GroupName, Rollout: effective}
}

// isDifferent reports whether there is a target definition that is not the base definition.
func (w *Waves) isDifferent() bool {
	return w.Rollout != nil && w.Target != nil && !maps.Equal(w.TargetRevisions, w.BaseRevisions)
}

// unitOf returns the unit of a replica. The robot matters only for system jobs.
func (w *Waves) unitOf(index int, robot string) rollout.Unit {
	if w.Fleet == nil {
		return rollout.Unit{Name: rollout.ReplicaUnit(w.Group, index)}
	}
	return rollout.Unit{Name: robot, Labels: w.Fleet[robot].Labels}
}

// decide returns which definition a unit should have.
func (w *Waves) decide(u rollout.Unit) rollout.Decision {
	if w.Rollout == nil {
		return rollout.Keep
	}
	decision := rollout.Decide(w.Rollout, u)
	switch {
	case decision != rollout.Target:
		return decision
	case w.Target == nil:
		return rollout.Keep
	case !w.isDifferent():
		return rollout.Base
	}
	return rollout.Target
}

// revisionsOf returns the revisions of one of the definitions, by task name.
func (w *Waves) revisionsOf(target bool) map[string]string {
	if target {
		return w.TargetRevisions
	}
	return w.BaseRevisions
}

// side is the definition that a Task has.
type side uint8

const (
	otherSide  side = iota // of another revision
	baseSide               // only of the base
	targetSide             // only of the target
	bothSides              // of both, which do not differ in this task
)

// sideOf returns the definition that a Task with this revision has.
func (w *Waves) sideOf(task, has string) side {
	base, inBase := w.BaseRevisions[task]
	target, inTarget := w.TargetRevisions[task]
	switch isBase, isTarget := inBase && base == has, inTarget && target == has; {
	case isBase && isTarget:
		return bothSides
	case isBase:
		return baseSide
	case isTarget:
		return targetSide
	}
	return otherSide
}

// definitionCheck is what follows for a Task from the definitions of its group. The zero value: it may stay as it is.
type definitionCheck struct {
	side side // zero without Waves
	// outdated is true if the Task should have another definition.
	outdated bool
	// undefined is true if that definition has no such task.
	undefined bool
	// isReplaced is true if the Task has ended and is deleted, so that it is created again if it is defined.
	isReplaced bool
	// isHeld is true if the Task was evicted for another definition that it should no longer get. The task
	// controller does not start it until that is withdrawn.
	isHeld bool
}

// needsChange reports whether the Task must be updated, replaced or released. Ended Tasks that are not
// replaced are updated when they are requeued.
func (c *taskRecord) needsChange() bool {
	return c.outdated && !c.state.IsTerminal() || c.isReplaced || c.isHeld
}

// checkDefinition returns what follows for a Task from its definitions.
func (w *Waves) checkDefinition(c *taskRecord) definitionCheck {
	v := definitionCheck{side: w.sideOf(c.slot.task, c.revision)}
	u := w.unitOf(c.slot.index, c.robot)
	decision := w.decide(u)
	if decision != rollout.Keep {
		want, isDefined := w.revisionsOf(decision == rollout.Target)[c.slot.task]
		v.outdated, v.undefined = want != c.revision, !isDefined
	}
	switch {
	case c.state == lifecycle.TaskFailed:
		v.isReplaced = v.outdated || decision == rollout.Target && w.isRetried(u, c.changedAt())
	case c.state.IsTerminal():
		v.isReplaced = v.undefined
	default:
		v.isHeld = !v.outdated && isWaiting(c.state) && c.evict > 0 && c.evict == c.attempt && c.revisedAt == 0
	}
	return v
}

// isRetried reports whether the failed units of a wave were tried again after a Task of it got its revision,
// at a time in seconds. A Task that was replaced in the second of the retry is not replaced once more.
func (w *Waves) isRetried(u rollout.Unit, changedAt int64) bool {
	i := rollout.FindWave(w.Rollout, u)
	if i < 0 {
		return false
	}
	at := w.Rollout.Status.Waves[i].RetriedAt
	return at != nil && at.Unix() > changedAt
}

// isSame reports whether both decide the same for each Task. Either may be nil.
func (w *Waves) isSame(o *Waves) bool {
	if w == nil || o == nil {
		return w == o
	}
	return rollout.HasSameDecisions(w.Rollout, o.Rollout) && w.fleetVersion == o.fleetVersion && w.Group == o.Group &&
		(w.Fleet == nil) == (o.Fleet == nil) && (w.Target == nil) == (o.Target == nil) &&
		maps.Equal(w.TargetRevisions, o.TargetRevisions) && maps.Equal(w.BaseRevisions, o.BaseRevisions)
}

// choose returns whether a Task that does not exist gets the target definition. A unit that keeps what it
// has gets the definition of its other Tasks, and the base definition if it has none.
func (w *Waves) choose(u rollout.Unit, siblings side) (target bool) {
	switch w.decide(u) {
	case rollout.Target:
		return true
	case rollout.Base:
		return false
	case rollout.Keep:
	}
	return siblings == targetSide && w.Target != nil
}

// addSide returns the definition of a replica, one of whose Tasks has this one. A Task that only the target
// has decides: the replica was being changed.
func (s side) addSide(o side) side {
	switch {
	case s == targetSide || o == targetSide:
		return targetSide
	case s == baseSide || o == baseSide:
		return baseSide
	}
	return max(s, o)
}

// template returns the base or the target definition of a group. Without Waves it is that of the group.
func (w *Waves) template(g *v1alpha1.TaskGroup, target bool) *v1alpha1.TaskGroupTemplate {
	if w != nil && target {
		return w.Target
	}
	return &g.Spec.TaskGroupTemplate
}

// chooseFor returns whether a new replica on a robot of a system job gets the target definition.
func (w *Waves) chooseFor(robot string) (target bool) {
	return w != nil && w.choose(w.unitOf(0, robot), otherSide)
}

// suits reports whether a robot that matches the rules of a system job matches the definition that a Task
// there should have. A Task of another revision was placed by its own rules.
func (w *Waves) suits(m Member, fit RobotMatch) bool {
	if w == nil {
		return true
	}
	switch decision := w.decide(w.unitOf(m.Index, m.Robot)); {
	case decision == rollout.Target || decision == rollout.Keep && m.side == targetSide:
		return fit.suits(true)
	case decision == rollout.Base || m.side == baseSide:
		return fit.suits(false)
	case m.side == bothSides:
		return fit.suits(false) || fit.suits(true)
	}
	return true
}
