package rollout

import (
	"fmt"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/kit"
	"k8s4r.io/k8s4r/internal/core/rollout"
	"k8s4r.io/k8s4r/internal/core/taskcounts"
	"k8s4r.io/k8s4r/internal/core/window"
)

// DefaultTick is the default of Controller.Tick.
const DefaultTick = 500 * time.Millisecond

// followTick is the least time between two status writes after the end of a Rollout, which only count.
const followTick = 30 * time.Second

// defaultMaxWaiting is spec.maxWaiting of a Rollout that sets none.
const defaultMaxWaiting = 10 * time.Minute

// settleTime is how long a manager that has started observes a unit before it exceeds its deadline: the
// manager does not know how long ago the unit was healthy.
const settleTime = time.Minute

// Actions are what the controller writes after one Plan.
type Actions struct {
	// Status is nil if it is unchanged, or if the next write of counts is not due.
	Status *v1alpha1.RolloutStatus
	Events []Event
	// RequeueAt is when to plan again. If zero, with the next change.
	RequeueAt time.Time
	// States are those of Input.Units, in the same order. Nil if they were not needed.
	States []State
	// Unreverted is how many units in contact are left to return in a revert.
	Unreverted int
}

// Event is an event of a Rollout.
type Event struct {
	Reason    string
	Message   string
	IsWarning bool
}

// plan computes Actions.
type plan struct {
	Input
	now  time.Time
	tick time.Duration
	out  Actions

	r *v1alpha1.Rollout       // a copy with the new status
	s *v1alpha1.RolloutStatus // of r

	positions  []int64      // of Units
	waves      []int        // of Units; -1: no wave that has started
	states     []State      // of Units
	view       *window.View // of Calendar at now
	waveCounts []waveCounts
	failures   []v1alpha1.RolloutFailure
}

// Plan computes the next status of a Rollout.
func Plan(now time.Time, tick time.Duration, w Input) Actions {
	r := *w.Rollout
	r.Status = *w.Rollout.Status.DeepCopy()
	p := &plan{Input: w, now: now.Truncate(time.Microsecond), tick: tick, r: &r, s: &r.Status}
	p.view = w.Calendar.At(p.now)
	p.s.ObservedGeneration = r.Generation
	if p.Prefetched != nil {
		p.s.Prefetched = *p.Prefetched
	}
	p.decide()
	if at := p.view.NextChange; !at.IsZero() {
		p.requeueAt(at) // a window closes, too, without a change of an object
	}
	p.setConditions()
	p.finishStatus()
	p.out.States = p.states
	return p.out
}

// decide computes the phase and what belongs to it.
func (p *plan) decide() {
	switch {
	case p.s.Phase == v1alpha1.RolloutSuperseded:
	case !rollout.HasStarted(p.r):
		p.start()
	case p.isOfAgents():
		p.decideAgents()
	case p.Job == nil || p.Job.UID != p.s.TargetUID:
		p.supersede(fmt.Sprintf("Job %s was deleted; its revisions no longer exist", p.r.Spec.Target.Name))
	case p.Newer != "":
		p.supersede(fmt.Sprintf("Rollout %s is newer", p.Newer))
	case !rollout.IsUsedBy(p.Job):
		p.supersede(fmt.Sprintf("Job %s changes its tasks by itself: its spec.update.strategy is not Rollout", p.Job.Name))
	case p.s.Phase == v1alpha1.RolloutReverted: // its message says how it has ended
	case p.hasTooManyUnits():
		p.stopCounting()
	case p.Target == nil || p.Current == nil:
		p.s.Message = p.describeMissingRevision()
	default:
		p.countUnits()
		p.followPhase()
		p.writeCounts()
	}
}

// stopCounting keeps the phase of a Rollout whose Job has grown too large since the start: no unit is added to a wave
// until it is smaller. An abort needs no counts.
func (p *plan) stopCounting() {
	if isLive(p.s.Phase) && p.s.Phase != v1alpha1.RolloutReverting && p.r.Spec.DesiredState == v1alpha1.RolloutDesiredAborted {
		p.abort(ReasonAbortRequested, "desiredState is aborted")
		return
	}
	p.s.Message = p.describeEnd(p.describeTooManyUnits())
}

// supersede ends a Rollout for good, also one that has ended before: it decides no more, even if what has
// superseded it is deleted. Its conditions keep how it ended.
func (p *plan) supersede(why string) {
	if !isLive(p.s.Phase) {
		why += "; before, it was " + p.s.Phase
	}
	p.end(v1alpha1.RolloutSuperseded, why)
}

// isLive reports whether a Rollout in this phase changes units, or will.
func isLive(phase string) bool {
	switch phase {
	case v1alpha1.RolloutAborted, v1alpha1.RolloutReverted, v1alpha1.RolloutComplete, v1alpha1.RolloutSuperseded:
		return false
	}
	return true
}

// followPhase computes the next phase of a Rollout that has started.
func (p *plan) followPhase() {
	desired := p.r.Spec.DesiredState
	switch p.s.Phase {
	case v1alpha1.RolloutReverting:
		p.revert()
	case v1alpha1.RolloutAborted:
		if desired == v1alpha1.RolloutDesiredReverted {
			p.beginRevert(ReasonRevertRequested, "desiredState is reverted")
			return
		}
		p.s.Message = p.describeEnd(p.describeAborted())
	case v1alpha1.RolloutComplete:
		p.followComplete(desired)
	default:
		p.followLive(desired)
	}
}

// followLive computes the next phase of a Rollout that has not ended.
func (p *plan) followLive(desired string) {
	switch desired {
	case v1alpha1.RolloutDesiredAborted:
		p.abort(ReasonAbortRequested, "desiredState is aborted")
	case v1alpha1.RolloutDesiredReverted:
		p.beginRevert(ReasonRevertRequested, "desiredState is reverted")
	case v1alpha1.RolloutDesiredPaused:
		p.s.Phase = v1alpha1.RolloutPaused
		p.s.Message = "desiredState is paused; " + p.describeProgress()
	default:
		p.runWaves()
	}
}

// followComplete counts the units of a complete Rollout. That of a Job can be reverted only until the Job has
// its revision: then there is nothing left to return to.
func (p *plan) followComplete(desired string) {
	switch {
	case desired == v1alpha1.RolloutDesiredReverted && p.isOfAgents():
		p.beginRevert(ReasonRevertRequested, "desiredState is reverted")
	case desired == v1alpha1.RolloutDesiredReverted && p.Job.Status.CurrentRevision == p.s.FromRevision && p.s.FromRevision != p.s.Revision:
		p.beginRevert(ReasonRevertRequested, "desiredState is reverted")
	case desired == v1alpha1.RolloutDesiredReverted:
		p.s.Message = fmt.Sprintf("%s; the Job has revision %d now, so desiredState reverted has no effect: create a Rollout to revision %d",
			p.describeCounts(&p.total().RolloutCounts), p.Job.Status.CurrentRevision, p.s.FromRevision)
	default:
		p.s.Message = p.describeCounts(&p.total().RolloutCounts)
	}
}

// beginRevert returns all units to the current revision of the Job, or agents to the version of before.
func (p *plan) beginRevert(reason, why string) {
	p.s.Phase = v1alpha1.RolloutReverting
	p.s.CompletedAt, p.s.CurrentWave = nil, ""
	p.setFailed(reason, why)
	p.revert()
}

// end sets a phase in which the Rollout changes nothing anymore.
func (p *plan) end(phase, message string) {
	p.s.Phase, p.s.Message, p.s.CurrentWave = phase, message, ""
	if p.s.CompletedAt == nil {
		p.s.CompletedAt = p.microNow()
	}
}

func (p *plan) microNow() *metav1.MicroTime { return &metav1.MicroTime{Time: p.now} }

func (p *plan) addEvent(e Event) { p.out.Events = append(p.out.Events, e) }

func (p *plan) requeueAt(at time.Time) { kit.SetEarliest(&p.out.RequeueAt, at) }

// isHeld reports whether the Job starts no tasks, so that no unit can become healthy.
func (p *plan) isHeld() bool { return !p.isOfAgents() && !taskcounts.CanStartTasks(p.Job) }

// finishStatus decides whether the status is written now. Counts alone wait for the tick.
func (p *plan) finishStatus() {
	if apiequality.Semantic.DeepEqual(p.s, &p.Rollout.Status) {
		return
	}
	tick := p.tick
	if !isLive(p.s.Phase) {
		tick = max(tick, followTick)
	}
	if due := p.LastStatus.Add(tick); len(p.out.Events) == 0 && !p.hasDecided() && p.now.Before(due) {
		p.requeueAt(due)
		return
	}
	p.out.Status = p.s
}

// hasDecided reports whether the status differs in more than counts and texts.
func (p *plan) hasDecided() bool {
	was := &p.Rollout.Status
	if p.s.Phase != was.Phase || p.s.ObservedGeneration != was.ObservedGeneration || p.s.Revision != was.Revision || p.s.Version != was.Version || len(p.s.Waves) != len(was.Waves) {
		return true
	}
	for i := range p.s.Waves {
		is, was := p.s.Waves[i], was.Waves[i]
		is.RolloutCounts, was.RolloutCounts = v1alpha1.RolloutCounts{}, v1alpha1.RolloutCounts{}
		is.AdmittedBound, is.AdmittedAt = was.AdmittedBound, was.AdmittedAt // raised tick by tick
		is.WaitingSince = was.WaitingSince                                  // may change with each unit
		if !apiequality.Semantic.DeepEqual(is, was) {
			return true
		}
	}
	return false
}

// findWaves computes the wave of each unit. It is called again after a wave has started.
func (p *plan) findWaves() {
	if p.positions == nil {
		p.positions, p.waves, p.states = make([]int64, len(p.Units)), make([]int, len(p.Units)), make([]State, len(p.Units))
		for i := range p.Units {
			p.positions[i] = rollout.Position(p.r.UID, p.Units[i].Name)
		}
	}
	for i := range p.Units {
		p.waves[i] = rollout.FindWave(p.r, p.Units[i].Unit)
	}
}
