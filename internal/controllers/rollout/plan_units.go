package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/rollout"
)

// waveCounts counts the units of a wave.
type waveCounts struct {
	v1alpha1.RolloutCounts
	unadmitted int // units that the rate does not allow yet
	// steady counts the units in contact that change. The wave waits for them.
	steady int
	// idle counts those of them that have not begun to change. If none of the wave changes, they cannot, and
	// the wave waits for them only for the time of a deadline.
	idle int
	// opening counts units whose maintenance windows open at some time. The wave waits for them without limit.
	opening int
	// opensAt is when the first of these windows opens.
	opensAt time.Time
	// stragglers counts those out of contact, those that come and go, and those that are held or whose windows never
	// open. The wave waits for them for maxWaiting.
	stragglers int
	// unable counts the failed units that could not be changed at all.
	unable int32
	// lastFailed is when the last of the failed units got its revision.
	lastFailed time.Time
}

// attemptedFailures returns the number of failed units that were changed.
func (c *waveCounts) attemptedFailures() int32 { return c.Failed - c.unable }

// countUnits computes the state of all units. Those of waves that have not started are waiting.
func (p *plan) countUnits() {
	p.findWaves()
	p.waveCounts = make([]waveCounts, len(p.s.Waves)+1)
	p.failures = nil
	for i := range p.Units {
		wave := p.waves[i]
		p.states[i] = StateWaiting
		if wave < 0 {
			p.total().add(StateWaiting)
			continue
		}
		p.states[i] = p.findState(&p.Units[i], wave)
		p.total().add(p.states[i])
		p.countInWave(i)
	}
}

// total returns the counts of all units.
func (p *plan) total() *waveCounts { return &p.waveCounts[len(p.waveCounts)-1] }

func (p *plan) countInWave(i int) {
	u, c, state := &p.Units[i], &p.waveCounts[p.waves[i]], p.states[i]
	c.add(state)
	if state == StateFailed && p.isUnable(u, p.waves[i]) {
		c.unable++
		p.total().unable++
	}
	switch {
	case state == StateUpdated || state == StateFailed:
		if state == StateFailed {
			c.lastFailed = later(c.lastFailed, u.revisedAt(p.Target))
		}
	case p.positions[i] >= p.s.Waves[p.waves[i]].AdmittedBound:
		c.unadmitted++
	case state == StateOutOfContact || state == StateHeld || p.comesAndGoes(u):
		c.stragglers++
	case state == StateOutsideWindow:
		c.addClosed(p.findObstacle(u, p.Target))
	case state == StateWaiting:
		c.idle++
	default:
		c.steady++
	}
}

// maxQuickLosses is how often in a row contact may be lost quickly: a restart of the server interrupts the
// contact with all robots, and must not end a wave.
const maxQuickLosses = 3

// steadyContact is how long contact must last until earlier losses are forgotten.
const steadyContact = 10 * time.Minute

// comesAndGoes reports whether the contact with a unit is often lost, and has not lasted since.
func (p *plan) comesAndGoes(u *Unit) bool {
	if u.QuickLosses < maxQuickLosses {
		return false
	}
	steadyAt := u.ContactSince.Add(steadyContact)
	if p.now.Before(steadyAt) {
		p.requeueAt(steadyAt)
		return true
	}
	return false
}

func (c *waveCounts) add(s State) {
	c.Total++
	switch s {
	case StateWaiting:
		c.Waiting++
	case StateOutOfContact:
		c.OutOfContact++
	case StateOutsideWindow:
		c.OutsideWindow++
	case StateHeld:
		c.Held++
	case StateUpdating:
		c.Updating++
	case StateUpdated:
		c.Updated++
	case StateFailed:
		c.Failed++
	}
}

// findState returns the state of a unit of a wave that has started.
func (p *plan) findState(u *Unit, wave int) State {
	if u.Agent != nil {
		return p.findAgentState(u, wave)
	}
	if t := p.findFailed(u, wave); t != nil {
		p.addFailure(wave, v1alpha1.RolloutFailure{Unit: u.Name, Task: t.Name, Reason: t.Reason, Message: t.Message})
		return StateFailed
	}
	unfinished, isUnproven := p.findUnfinished(u, wave)
	switch {
	case unfinished == "":
		return StateUpdated
	case !u.InContact && !u.hasStarted(p.Target):
		return StateOutOfContact
	}
	if state, isBlocked := obstacleStates[p.findObstacle(u, p.Target).Obstacle]; isBlocked && !p.isStarting(u, wave) {
		return state
	}
	switch {
	case !p.isChanging(u, wave):
		return StateWaiting
	case isUnproven && u.InContact:
		return StateUpdating // the next heartbeat proves it, also after the deadline
	case p.hasExceededDeadline(u, wave):
		p.addFailure(wave, u.describeDeadline(rollout.Deadline(p.r), unfinished))
		return StateFailed
	}
	return StateUpdating
}

// isStarting reports whether a Task of the new revision was started and is not healthy. Its deadline passes also
// while another Task of the unit cannot be changed, which would hide that the revision is broken.
func (p *plan) isStarting(u *Unit, wave int) bool {
	return slices.ContainsFunc(u.Tasks, func(t Task) bool {
		return p.Target.has(&t) && (t.HasStarted || t.State.HoldsResources()) && p.checkHealth(u, &t, p.healthyTime(t.Group, wave)) == taskUnhealthy
	})
}

// describeDeadline returns the failure of a unit that has exceeded the deadline. A revision may be what ended the
// contact with its robot.
func (u *Unit) describeDeadline(deadline time.Duration, unfinished string) v1alpha1.RolloutFailure {
	if !u.InContact {
		return v1alpha1.RolloutFailure{Unit: u.Name, Reason: ReasonContactLost, Message: fmt.Sprintf("its robot was given the new revision and has lost contact, or is cordoned; not healthy after %s: %s", deadline, unfinished)}
	}
	return v1alpha1.RolloutFailure{Unit: u.Name, Reason: ReasonDeadlineExceeded, Message: fmt.Sprintf("not healthy after %s: %s", deadline, unfinished)}
}

// hasStarted reports whether a robot was given a Task of the new revision, which it may still run.
func (u *Unit) hasStarted(target Hashes) bool {
	return slices.ContainsFunc(u.Tasks, func(t Task) bool { return target.has(&t) && t.State.HoldsResources() })
}

// findFailed returns a Task of the new revision that has failed since the last retry, or nil. A Task that
// failed only because of its init task is named last.
func (p *plan) findFailed(u *Unit, wave int) *Task {
	var found *Task
	for i := range u.Tasks {
		t := &u.Tasks[i]
		if t.State != lifecycle.TaskFailed || !p.Target.has(t) || t.RevisedAt.Before(p.retriedAt(wave)) {
			continue
		}
		if found == nil || found.Reason == v1alpha1.ReasonInitTaskFailed {
			found = t
		}
	}
	return found
}

func (p *plan) retriedAt(wave int) time.Time {
	if at := p.s.Waves[wave].RetriedAt; at != nil {
		return at.Time
	}
	return time.Time{}
}

// findUnfinished returns why a unit is not updated yet. It returns "" if all of its Tasks have the new
// revision and are healthy. isUnproven reports whether only contact with its robot is missing.
func (p *plan) findUnfinished(u *Unit, wave int) (why string, isUnproven bool) {
	exist, wanted := 0, 0 // exist: healthy or unproven
	for i := range u.Tasks {
		t := &u.Tasks[i]
		switch p.checkHealth(u, t, p.healthyTime(t.Group, wave)) {
		case taskHealthy:
			exist++
		case taskUnproven:
			exist++
			isUnproven = true
			why = cmp.Or(why, fmt.Sprintf("task %s is Running, but its robot was not in contact after it has run long enough", t.Name))
		case taskUnhealthy:
			if why == "" || t.Message != "" {
				why = describeTask(t)
			}
		case taskOutdated:
			why = fmt.Sprintf("task %s has another revision", t.Name)
		}
	}
	if exist < len(u.Tasks) {
		return why, false
	}
	for _, group := range u.Groups {
		wanted += len(p.Target[group])
	}
	if exist < wanted || wanted == 0 {
		return fmt.Sprintf("%d of %d tasks exist", exist, wanted), false
	}
	return why, isUnproven
}

func describeTask(t *Task) string {
	text := fmt.Sprintf("task %s is %s", t.Name, t.State)
	if t.Message != "" {
		text += ": " + t.Message
	}
	return text
}

// taskHealth is the health of a Task with the new revision.
type taskHealth int

const (
	taskUnhealthy taskHealth = iota
	// taskOutdated is that of a Task with another revision.
	taskOutdated
	// taskUnproven is that of a Task whose last reported run would be healthy by now, but its robot was not in
	// contact since: the robot may have failed to report the end of the run.
	taskUnproven
	taskHealthy
)

// contactTick is how often a unit that waits for a heartbeat is checked. Heartbeats cause no plan of their own.
const contactTick = 2 * time.Second

// checkHealth returns whether a Task has completed, or its current run has lasted so long and its robot was in
// contact after that. A run that had, before contact was lost, still counts.
func (p *plan) checkHealth(u *Unit, t *Task, needs time.Duration) taskHealth {
	at := t.RunsSince.Add(needs)
	switch {
	case !p.Target.has(t):
		return taskOutdated
	case t.State == lifecycle.TaskCompleted:
		return taskHealthy
	case t.EndsItself || t.RunsSince.IsZero():
		return taskUnhealthy
	case t.State == lifecycle.TaskUnknown && !t.SeenRunning.Before(at) && u.isProvenAt(at, t):
		return taskHealthy
	case t.State != lifecycle.TaskRunning:
		return taskUnhealthy
	case p.now.Before(at):
		p.requeueAt(at)
		return taskUnhealthy
	case !u.isProvenAt(at, t):
		p.requeueAt(p.now.Add(contactTick))
		return taskUnproven
	}
	return taskHealthy
}

// isProvenAt reports whether the robot of a unit was in contact at this time or later. The report of a run is
// contact, too.
func (u *Unit) isProvenAt(at time.Time, t *Task) bool {
	return !later(u.LastContact, t.RunsSince).Before(at)
}

// healthyTime returns how long the Tasks of a group must run until they are healthy.
func (p *plan) healthyTime(group string, wave int) time.Duration {
	return rollout.HealthyTime(p.Job, group, &p.r.Spec.Waves[wave])
}

// hasExceededDeadline reports whether a unit that is changing should be healthy by now. The deadline does not
// pass while the Job starts no tasks.
func (p *plan) hasExceededDeadline(u *Unit, wave int) bool {
	if p.isHeld() {
		return false
	}
	from := later(later(u.revisedAt(p.Target), u.ChangingSince), p.retriedAt(wave))
	switch {
	case u.beginsToChange():
		from = p.now
	case from.IsZero():
		from = later(p.ObservedSince, p.startedAt(wave))
	}
	if u.hasOther(p.Target) {
		from = later(from, p.ObservedSince) // a manager before may have seen it begin, which is not stored
	}
	from = later(from, p.resumedAt())
	at := later(from.Add(rollout.Deadline(p.r)), p.ObservedSince.Add(min(rollout.Deadline(p.r), settleTime)))
	if p.now.Before(at) {
		p.requeueAt(at)
		return false
	}
	return true
}

func (p *plan) startedAt(wave int) time.Time {
	if at := p.s.Waves[wave].StartedAt; at != nil {
		return at.Time
	}
	return time.Time{}
}

// resumedAt returns when the Job was last resumed. Zero if it never was, and for agents.
func (p *plan) resumedAt() time.Time {
	if p.Job == nil {
		return time.Time{}
	}
	if c := meta.FindStatusCondition(p.Job.Status.Conditions, v1alpha1.ConditionSuspended); c != nil && c.Status == metav1.ConditionFalse {
		return c.LastTransitionTime.Time
	}
	return time.Time{}
}

// beginsToChange reports whether a unit that is updating now was known to be not.
func (u *Unit) beginsToChange() bool {
	return u.HasLast && u.Last != StateUpdating && u.Last != StateFailed
}

// isChanging reports whether a unit has a Task of the new revision, or one that is being stopped. If a robot does
// not follow an order, it is withdrawn and given again: between two orders, the unit is changing, too.
func (p *plan) isChanging(u *Unit, wave int) bool {
	since := later(p.startedAt(wave), u.BlockedAt) // before, it was withdrawn for another cause
	isAdmitted := rollout.Decide(p.r, u.Unit) == rollout.Target
	return slices.ContainsFunc(u.Tasks, func(t Task) bool {
		return t.IsStopping || p.Target.has(&t) || isAdmitted && t.WithdrawnAt.After(since)
	})
}

// revisedAt returns when the last Task of the unit got the new revision. Zero if none has it.
func (u *Unit) revisedAt(target Hashes) (last time.Time) {
	for i := range u.Tasks {
		if t := &u.Tasks[i]; target.has(t) {
			last = later(last, t.RevisedAt)
		}
	}
	return last
}

// hasOther reports whether the unit has a Task of another revision.
func (u *Unit) hasOther(h Hashes) bool {
	for i := range u.Tasks {
		if !h.has(&u.Tasks[i]) {
			return true
		}
	}
	return false
}

// has reports whether a Task has the revision.
func (h Hashes) has(t *Task) bool { return t.Revision != "" && h[t.Group][t.Task] == t.Revision }
