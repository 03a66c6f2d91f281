package rollout

import (
	"fmt"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/rollout"
)

// Reasons of agents that have failed, besides those of rollout.Obstacle, ReasonDeadlineExceeded and
// ReasonContactLost.
const (
	// ReasonUpdateFailed is the reason of an agent that could not be updated, and has the version of before.
	ReasonUpdateFailed = "UpdateFailed"
	// ReasonRevertFailed is the reason of an agent that could not return to the version of before.
	ReasonRevertFailed = "RevertFailed"
	// ReasonVersionChanged is the reason of an agent that has another version since the Rollout updated it.
	ReasonVersionChanged = "VersionChanged"
)

// noLimit is the number of units that may be admitted if nothing bounds it.
const noLimit = math.MaxInt

func (p *plan) isOfAgents() bool { return p.r.Spec.Target.IsAgent() }

// decideAgents computes the phase of a Rollout of agents that has started.
func (p *plan) decideAgents() {
	switch {
	case p.Newer != "":
		p.supersede(fmt.Sprintf("Rollout %s is newer", p.Newer))
	case p.s.Phase == v1alpha1.RolloutReverted: // its message says how it has ended
	default:
		p.countUnits()
		p.followPhase()
		p.writeCounts()
	}
}

// needsRevert reports whether a unit still has to return to what it had before.
func (p *plan) needsRevert(u *Unit) bool {
	if u.Agent != nil {
		return u.Agent.needsRevert
	}
	return u.hasOther(p.Current)
}

// describeBefore returns what units had before, before it is read which revision that is.
func (p *plan) describeBefore() string {
	if p.isOfAgents() {
		return "the version of before"
	}
	return "the revision of before"
}

// describeBase returns what a revert returns units to.
func (p *plan) describeBase() string {
	if p.isOfAgents() {
		return p.describeBefore()
	}
	return fmt.Sprintf("revision %d", p.Job.Status.CurrentRevision)
}

// findAgentState returns the state of an agent in a wave that has started.
func (p *plan) findAgentState(u *Unit, wave int) State {
	a := u.Agent
	report := a.findReport(p.r, p.s.Waves[wave].Retries)
	failure := a.findFailure(report, u.InContact)
	switch {
	case p.isAgentHealthy(u, wave):
		return StateUpdated
	case failure.Reason != "":
		failure.Unit = u.Name
		p.addFailure(wave, failure)
		return StateFailed
	case report == nil && !u.InContact:
		return StateOutOfContact
	}
	if state, isBlocked := obstacleStates[p.findObstacle(u, nil).Obstacle]; isBlocked && (report == nil || isWaiting(report)) {
		return state
	}
	switch {
	case report == nil && rollout.Decide(p.r, u.Unit) != rollout.Target, isWaiting(report):
		return StateWaiting
	case u.InContact && !a.HealthySince.IsZero():
		return StateUpdating // it has settled, and healthyFor passes or a heartbeat is missing
	case p.hasExceededDeadline(u, wave):
		p.addFailure(wave, u.describeAgentDeadline(rollout.Deadline(p.r), report))
		return StateFailed
	}
	return StateUpdating
}

func isWaiting(report *v1alpha1.AgentUpdate) bool {
	return report != nil && report.State == v1alpha1.AgentUpdateWaiting
}

// findReport returns what the agent has reported about an order of a Rollout, or nil.
func (a *Agent) findReport(r *v1alpha1.Rollout, try int32) *v1alpha1.AgentUpdate {
	if o := (rollout.AgentOrder{Rollout: r.UID, Try: try}); o.IsAnsweredBy(a.Update) {
		return a.Update
	}
	return nil
}

// findFailure returns why the agent has failed, or the zero value. Report is that of the last order, or nil.
func (a *Agent) findFailure(report *v1alpha1.AgentUpdate, inContact bool) v1alpha1.RolloutFailure {
	switch {
	case report != nil && report.State == v1alpha1.AgentUpdateFailed:
		return v1alpha1.RolloutFailure{Reason: ReasonUpdateFailed, Message: report.Message}
	case report != nil && report.State == v1alpha1.AgentUpdateSettled && !a.HasSettled:
		return v1alpha1.RolloutFailure{Reason: ReasonVersionChanged, Message: fmt.Sprintf("its agent was updated, and has version %s now", a.Version)}
	case a.hasRevertFailed():
		return v1alpha1.RolloutFailure{Reason: ReasonRevertFailed, Message: a.Update.Message}
	case report == nil && inContact && a.Obstacle.Reason != "":
		return v1alpha1.RolloutFailure{Reason: a.Obstacle.Reason, Message: a.Obstacle.Message}
	}
	return v1alpha1.RolloutFailure{}
}

// hasRevertFailed reports whether the agent could not return to the version of before.
func (a *Agent) hasRevertFailed() bool {
	return a.HasSettled && a.Update != nil && a.Update.IsRevert && a.Update.State == v1alpha1.AgentUpdateFailed
}

// isUnable reports whether a unit in contact has failed although it was sent no order. It shows nothing about the
// version, so it does not abort the Rollout, and is not tried again.
func (p *plan) isUnable(u *Unit, wave int) bool {
	return u.Agent != nil && u.InContact && u.Agent.Obstacle.Reason != "" && u.Agent.findReport(p.r, p.s.Waves[wave].Retries) == nil
}

// isAgentHealthy reports whether an agent has the version, has been healthy with it for long enough, and was in
// contact after that. What it was before contact was lost still counts. One that had the version before the Rollout is healthy at once.
func (p *plan) isAgentHealthy(u *Unit, wave int) bool {
	a := u.Agent
	if a.hasRevertFailed() || a.HealthySince.IsZero() {
		return false
	}
	needs := max(rollout.MinHealthyTime, p.r.Spec.Waves[wave].HealthyFor.Value())
	at := a.HealthySince.Add(needs)
	switch {
	case a.HadVersion || !a.SeenHealthy.Before(at) && !u.LastContact.Before(at):
		return true
	case u.InContact && p.now.Before(at):
		p.requeueAt(at)
	case u.InContact:
		p.requeueAt(p.now.Add(contactTick))
	}
	return false
}

// describeAgentDeadline returns the failure of an agent that has exceeded the deadline. Report is nil if it has
// not answered. A new version may be what ended the contact.
func (u *Unit) describeAgentDeadline(deadline time.Duration, report *v1alpha1.AgentUpdate) v1alpha1.RolloutFailure {
	f := v1alpha1.RolloutFailure{Unit: u.Name, Reason: ReasonDeadlineExceeded}
	state := "its agent has not answered the order"
	if report != nil {
		state = "the last reported state is " + report.State
	}
	f.Message = fmt.Sprintf("not updated after %s: %s", deadline, state)
	if !u.InContact {
		f.Reason = ReasonContactLost
		f.Message = fmt.Sprintf("its agent began the update and has lost contact; not updated after %s: %s", deadline, state)
	}
	return f
}

// boundsAgents reports whether the controller itself bounds how many agents are updated at the same time.
func (p *plan) boundsAgents() bool { return p.isOfAgents() && p.r.Spec.MaxUnavailable != nil }

// maxUnavailable returns how many agents may change at the same time, at least 1.
func (p *plan) maxUnavailable() int {
	most, err := intstr.GetScaledValueFromIntOrPercent(p.r.Spec.MaxUnavailable, len(p.Units), true)
	if err != nil {
		return 1 // admission has checked the text
	}
	return max(1, most)
}

// freeSlots returns how many more agents maxUnavailable lets change now. For tasks, the task groups' controller
// bounds it.
func (p *plan) freeSlots() int {
	if !p.boundsAgents() {
		return noLimit
	}
	free := p.maxUnavailable()
	for i := range p.Units {
		if p.takesSlot(i) {
			free--
		}
	}
	return max(0, free)
}

// takesSlot reports whether an agent changes, or may begin at any time: the server sends orders to all that are
// admitted. After the end of its wave it takes a slot only while it changes, so that those for which the wave did
// not wait do not keep all slots.
func (p *plan) takesSlot(i int) bool {
	switch p.states[i] {
	case StateUpdating:
		return true
	case StateWaiting, StateHeld, StateOutsideWindow:
		if p.waves[i] < 0 || !p.Units[i].InContact {
			return false
		}
		w := &p.s.Waves[p.waves[i]]
		return w.FinishedAt == nil && p.positions[i] < w.AdmittedBound
	case StateOutOfContact, StateUpdated, StateFailed:
	}
	return false
}

// awaitSlots waits for slots of maxUnavailable. If only agents have them that do not begin, for the time that a wave
// waits for such, others are admitted besides them.
func (p *plan) awaitSlots(i int) {
	w, c := &p.s.Waves[i], &p.waveCounts[i]
	if !p.boundsAgents() {
		return
	}
	if p.freeSlots() > 0 || p.total().Updating > 0 || c.opening > 0 || c.stragglers+c.idle == 0 {
		w.WaitingSince = nil
		return
	}
	if w.WaitingSince == nil {
		w.WaitingSince = p.microNow()
	}
	if at := w.WaitingSince.Add(p.waitingTime(c)); p.now.Before(at) {
		p.requeueAt(at)
		p.s.Message += "; waits until " + at.UTC().Format(time.RFC3339) + " for agents that do not begin and count for maxUnavailable"
		return
	}
	w.WaitingSince = nil
	n := p.maxUnavailable()
	if p.r.Spec.Rate != nil {
		n = min(n, int(p.rate()*maxAdmissionGap.Minutes()))
		w.AdmittedAt = p.microNow()
	}
	p.admit(i, n)
	p.requeueAt(p.now.Add(p.tick))
}
