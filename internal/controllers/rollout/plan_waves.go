package rollout

import (
	"fmt"
	"math"
	"time"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/rollout"
)

// runWaves runs the current wave, and starts the next ones as far as they can start.
func (p *plan) runWaves() {
	if p.checkFinishedWaves() {
		return
	}
	for {
		i := len(p.s.Waves) - 1
		if i >= 0 && p.s.Waves[i].FinishedAt == nil {
			if !p.runWave(i) {
				return
			}
			continue
		}
		if !p.startWave(i + 1) {
			return
		}
	}
}

// checkFinishedWaves aborts if units have failed since their wave has finished: its pause is for that. It reports
// whether the Rollout does not go on.
func (p *plan) checkFinishedWaves() bool {
	for i := range p.s.Waves {
		if p.s.Waves[i].FinishedAt == nil {
			continue
		}
		if cause := p.findAbortCause(i); cause != "" {
			p.abortByFailures(cause)
			return true
		}
	}
	return false
}

// runWave runs a wave and reports whether it has finished.
func (p *plan) runWave(i int) bool {
	w := &p.s.Waves[i]
	p.s.Phase, p.s.CurrentWave, p.s.Message = v1alpha1.RolloutProgressing, w.Name, p.describeProgress()
	if cause := p.findAbortCause(i); cause != "" {
		if !p.retryWave(i) {
			p.abortByFailures(cause)
		}
		return false
	}
	p.raiseAdmission(i)
	c := &p.waveCounts[i]
	switch {
	case c.unadmitted > 0:
		p.awaitSlots(i)
		return false
	case c.steady > 0 || c.idle > 0 && p.isHeld():
		w.WaitingSince = nil
		return false
	case p.retryWave(i):
		return false
	case c.opening > 0:
		w.WaitingSince = nil
		return false
	case c.stragglers+c.idle > 0:
		if w.WaitingSince == nil {
			w.WaitingSince = p.microNow()
		}
		if at := w.WaitingSince.Add(p.waitingTime(c)); p.now.Before(at) {
			p.requeueAt(at)
			if c.idle == 0 {
				p.s.Message += "; waits until " + at.UTC().Format(time.RFC3339) + " for " + describeStragglers(&c.RolloutCounts)
			}
			return false
		}
	}
	w.FinishedAt, w.AdmittedBound = p.microNow(), w.Bound
	return true
}

// retryWave tries the failed units of a wave again and reports whether it does. The new Tasks must be
// distinguishable from the failed ones by their time, which has seconds.
func (p *plan) retryWave(i int) bool {
	w, c := &p.s.Waves[i], &p.waveCounts[i]
	if c.attemptedFailures() == 0 || w.Retries >= p.r.Spec.Retry {
		return false
	}
	at := p.now.Truncate(time.Second)
	if !at.After(c.lastFailed) {
		p.requeueAt(c.lastFailed.Truncate(time.Second).Add(time.Second))
		return true
	}
	w.Retries++
	w.RetriedAt, w.WaitingSince = p.microNow(), nil
	w.RetriedAt.Time = at
	if p.boundsAgents() {
		w.AdmittedBound = 0 // those that are tried again are admitted one after another, too
	}
	p.countUnits()
	p.s.Message = p.describeProgress()
	return true
}

// startWave starts a wave, or completes the Rollout after the last one. It reports whether there is a new
// wave to run.
func (p *plan) startWave(i int) bool {
	p.s.CurrentWave = ""
	if i == len(p.r.Spec.Waves) {
		p.complete()
		return false
	}
	w := &p.r.Spec.Waves[i]
	if p.isHeld() {
		p.s.Phase, p.s.Message = v1alpha1.RolloutProgressing, p.describeProgress() // its units could not become healthy
		return false
	}
	if i > 0 {
		if at := p.s.Waves[i-1].FinishedAt.Add(p.r.Spec.Waves[i-1].Pause.Value()); p.now.Before(at) {
			p.requeueAt(at)
			p.s.Phase = v1alpha1.RolloutPausing
			p.s.Message = fmt.Sprintf("wave %s starts at %s; %s", w.Name, at.UTC().Format(time.RFC3339), p.describeCounts(&p.total().RolloutCounts))
			return false
		}
	}
	if !p.isApproved(w) {
		p.awaitApproval(w)
		return false
	}
	s := v1alpha1.RolloutWaveStatus{Name: w.Name, Bound: p.findBound(i), StartedAt: p.microNow()}
	if p.s.StartedAt == nil {
		p.s.StartedAt = p.microNow()
	}
	p.s.Waves = append(p.s.Waves, s)
	p.countUnits() // none of its units is admitted yet
	p.admitFirst(i)
	p.addEvent(Event{Reason: ReasonWaveStarted, Message: fmt.Sprintf("wave %s (%d of %d) started with %s", w.Name, i+1, len(p.r.Spec.Waves), describeUnits(int(p.waveCounts[i].Total)))})
	return true
}

func (p *plan) isApproved(w *v1alpha1.RolloutWave) bool {
	if w.Approval != v1alpha1.ApprovalManual {
		return true
	}
	for _, name := range p.r.Spec.ApprovedWaves {
		if name == w.Name {
			return true
		}
	}
	return false
}

func (p *plan) awaitApproval(w *v1alpha1.RolloutWave) {
	p.s.Message = fmt.Sprintf("add %s to spec.approvedWaves to start wave %s; %s", w.Name, w.Name, p.describeCounts(&p.total().RolloutCounts))
	if p.s.Phase != v1alpha1.RolloutWaitingForApproval {
		p.s.Phase = v1alpha1.RolloutWaitingForApproval
		p.addEvent(Event{Reason: v1alpha1.RolloutWaitingForApproval, Message: fmt.Sprintf("wave %s waits: add it to spec.approvedWaves", w.Name)})
	}
}

func (p *plan) complete() {
	p.end(v1alpha1.RolloutComplete, p.describeCounts(&p.total().RolloutCounts))
	p.addEvent(Event{Reason: v1alpha1.RolloutComplete, Message: fmt.Sprintf("all waves have finished: %s", p.s.Message)})
}

// findBound returns the bound of a wave that starts. Percent and count include the units of earlier waves.
func (p *plan) findBound(i int) int64 {
	w := &p.r.Spec.Waves[i]
	if len(w.RobotSelector) > 0 {
		return rollout.EndPosition
	}
	var rest []int64
	for n, wave := range p.waves {
		if wave < 0 {
			rest = append(rest, p.positions[n])
		}
	}
	included := len(p.Units) - len(rest)
	if w.Count != nil {
		return rollout.BoundFor(rest, int(*w.Count)-included)
	}
	if w.Percent == nil || *w.Percent >= 100 {
		return rollout.EndPosition // also without a unit, for those that come later
	}
	return rollout.BoundFor(rest, rollout.ShareOf(len(p.Units), *w.Percent)-included)
}

// admitFirst admits the units of a wave that starts: all, or with a rate the first one.
func (p *plan) admitFirst(i int) {
	if p.r.Spec.Rate == nil {
		p.admit(i, p.freeSlots())
		return
	}
	p.s.Waves[i].AdmittedAt = p.microNow()
	p.admit(i, min(1, p.freeSlots()))
}

// admit admits up to n more units of a wave. If none is left, it admits those that come later.
func (p *plan) admit(i, n int) {
	if n <= 0 {
		return
	}
	w, left := &p.s.Waves[i], p.unadmittedPositions(i)
	w.AdmittedBound = w.Bound
	if n < noLimit && len(left) > 0 {
		w.AdmittedBound = min(w.Bound, rollout.BoundFor(left, n))
	}
	p.countUnits()
}

// unadmittedPositions returns the positions of the units of a wave that are not admitted and have not
// finished. If the number of agents that change is bounded, those out of contact do not count: they take no
// place.
func (p *plan) unadmittedPositions(i int) (out []int64) {
	for n, wave := range p.waves {
		isLeft := p.states[n] != StateUpdated && p.states[n] != StateFailed && (p.Units[n].InContact || !p.boundsAgents())
		if wave == i && isLeft && p.positions[n] >= p.s.Waves[i].AdmittedBound {
			out = append(out, p.positions[n])
		}
	}
	return out
}

// maxAdmissionGap bounds for how much time at once units are admitted: after a pause, or without a manager,
// the rate is not made up for.
const maxAdmissionGap = time.Minute

// raiseAdmission admits as many more units of a wave as the rate allows since the last time.
func (p *plan) raiseAdmission(i int) {
	w := &p.s.Waves[i]
	if w.AdmittedBound >= w.Bound {
		return
	}
	free := p.freeSlots()
	if p.r.Spec.Rate == nil {
		p.admit(i, free)
		return
	}
	if p.waveCounts[i].onlyOpens() {
		w.AdmittedAt = nil // the rate begins again when a window has opened
		return
	}
	if w.AdmittedAt == nil || p.Rollout.Status.Phase != v1alpha1.RolloutProgressing && p.now.After(w.StartedAt.Time) {
		w.AdmittedAt = p.microNow() // it was paused
	}
	interval := time.Duration(float64(time.Minute) / p.rate())
	from := w.AdmittedAt.Time
	if gap := p.now.Add(-maxAdmissionGap); from.Before(gap) {
		from = gap
	}
	if n := min(int(p.now.Sub(from)/interval), free); n > 0 {
		from = from.Add(time.Duration(n) * interval)
		p.admit(i, n)
	}
	w.AdmittedAt = p.microNow()
	w.AdmittedAt.Time = from.Truncate(time.Microsecond)
	if w.AdmittedBound < w.Bound && free > 0 {
		p.requeueAt(later(from.Add(interval), p.now.Add(p.tick)))
	}
}

// maxRate bounds the rate of a Rollout, in units per minute.
const maxRate = 1_000_000

// rate returns how many units may be changed in a minute: it grows with the units that were updated.
func (p *plan) rate() float64 {
	r := p.r.Spec.Rate
	rate := float64(r.PerMinute)
	if r.GrowthPercent != nil && r.GrowAfter != nil {
		rate *= math.Pow(1+float64(*r.GrowthPercent)/100, float64(p.total().Updated / *r.GrowAfter))
	}
	return max(1, min(rate, maxRate))
}

// waitingTime returns how long a wave waits if none of its units changes. Those in contact may only need a moment to
// begin, so maxWaiting alone does not count for them.
func (p *plan) waitingTime(c *waveCounts) time.Duration {
	if c.idle > 0 {
		return max(p.maxWaiting(), rollout.Deadline(p.r))
	}
	return p.maxWaiting()
}

func (p *plan) maxWaiting() time.Duration {
	if d := p.r.Spec.MaxWaiting; d != nil {
		return d.Value()
	}
	return defaultMaxWaiting
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
