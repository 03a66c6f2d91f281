package rollout

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/taskstate"
)

// sightings holds when this manager has seen runs begin and contact change. The clocks of robots are not
// trusted for it. After a restart of the manager it begins again, which only delays what follows.
type sightings struct {
	since time.Time
	// isFirst is true until the units were observed once. What is there then may have been there for long.
	isFirst bool
	runs    map[types.UID]run
	last    map[types.UID]run // of the observation before
	units   map[string]unitSighting
	// unreverted is the least number of units that were seen left to return in a revert, since returnedAt.
	// Zero if none were.
	unreverted int
	returnedAt time.Time
}

// run is what was seen of the current run of a Task.
type run struct {
	attempt     int32
	number      int64
	since, seen time.Time // zero if it has not been seen to run
	// hasStarted is that of Task. It outlasts a run.
	hasStarted bool
}

// unitSighting is what was seen of a unit.
type unitSighting struct {
	isInContact   bool
	contactSince  time.Time
	quickLosses   int
	state         State
	hasState      bool
	changingSince time.Time
	// heartbeat and lastContact are Heartbeat and LastContact of Unit. nextContact is a later one that has not
	// settled. Zero if there is none.
	heartbeat, lastContact, nextContact time.Time
	blockedAt                           time.Time
	// healthySince and healthySeen are those of Agent.
	healthySince, healthySeen time.Time
}

func newSightings(now time.Time) sightings {
	return sightings{since: now, isFirst: true, runs: map[types.UID]run{}, units: map[string]unitSighting{}}
}

// begin starts an observation of all Tasks.
func (s *sightings) begin() { s.last, s.runs = s.runs, make(map[types.UID]run, len(s.runs)) }

// finish ends an observation. Tasks that it did not have are forgotten.
func (s *sightings) finish() { s.last, s.isFirst = nil, false }

// observeTask returns a Task with when its run was seen. Only runs of the new revision matter.
func (s *sightings) observeTask(now time.Time, o *v1alpha1.Task, group string, target Hashes) Task {
	t := newTask(o, group)
	if t.RevisedAt.After(now) {
		t.RevisedAt = now // a user may have written it
	}
	if !target.has(&t) {
		return t
	}
	was := s.last[o.UID]
	r := run{attempt: o.Status.Attempt, number: taskstate.CurrentRun(o)}
	if was.attempt == r.attempt && was.number == r.number {
		r = was
	}
	switch isRunning := taskstate.IsRunning(o); {
	case isRunning && r.since.IsZero():
		r.since, r.seen = s.firstSeen(now, o, &t), now
	case isRunning:
		r.seen = now
	case t.State != lifecycle.TaskUnknown:
		r.since, r.seen = time.Time{}, time.Time{}
	}
	r.hasStarted = was.hasStarted || t.State.HoldsResources()
	s.runs[o.UID] = r
	t.RunsSince, t.SeenRunning, t.HasStarted = r.since, r.seen, r.hasStarted
	return t
}

// firstSeen returns since when a run counts that was not seen before: since now, or, in the first observation,
// since it began by the robot's clock, but not before the Task had its revision.
func (s *sightings) firstSeen(now time.Time, o *v1alpha1.Task, t *Task) time.Time {
	at := runStart(o)
	if !s.isFirst || at.IsZero() || at.After(now) {
		return now
	}
	return later(at, t.RevisedAt)
}

// observeContact sets since when the units are in contact, and changing, and when their robots were last in contact.
func (s *sightings) observeContact(now time.Time, units []Unit) {
	all := make(map[string]unitSighting, len(units))
	for i := range units {
		u := &units[i]
		was, known := s.units[u.Name]
		is := was
		is.isInContact = u.InContact
		switch {
		case u.InContact && !was.isInContact && !s.isFirst:
			is.contactSince = now
		case !u.InContact && known && was.isInContact:
			is.countLoss(now)
		}
		is.observeHeartbeat(now, u.Heartbeat)
		u.LastContact = is.lastContact
		u.ContactSince, u.QuickLosses, u.ChangingSince = is.contactSince, is.quickLosses, is.changingSince
		u.Last, u.HasLast, u.BlockedAt = is.state, is.hasState, is.blockedAt
		all[u.Name] = is
	}
	s.units = all
}

// observeAgents sets since when the agents are healthy with the new version. A short time in contact does not
// count any more after contact was lost.
func (s *sightings) observeAgents(now time.Time, units []Unit) {
	for i := range units {
		u := &units[i]
		is := s.units[u.Name]
		switch {
		case !u.Agent.HasSettled:
			is.healthySince, is.healthySeen = time.Time{}, time.Time{}
		case is.healthySince.IsZero() && (u.InContact || s.isFirst):
			is.healthySince = s.firstHealthy(now, u.Agent)
		case u.InContact && u.ContactSince.After(is.healthySeen) && is.healthySeen.Sub(is.healthySince) < steadyContact:
			is.healthySince = u.ContactSince
		}
		if !is.healthySince.IsZero() && (u.InContact || s.isFirst) {
			is.healthySeen = now
		}
		u.Agent.HealthySince, u.Agent.SeenHealthy = is.healthySince, is.healthySeen
		s.units[u.Name] = is
	}
}

// firstHealthy returns since when an agent counts as healthy that was not seen so before: since now or, in the
// first observation, since it has settled by the robot's clock.
func (s *sightings) firstHealthy(now time.Time, a *Agent) time.Time {
	if u := a.Update; s.isFirst && u != nil && u.At != nil && u.At.Time.Before(now) {
		return u.At.Time
	}
	return now
}

// contactSettles is how old a message must be until it counts as contact. When a connection or the server is back, a
// heartbeat may arrive before the reports of the time before, such as that a run has ended.
const contactSettles = 5 * time.Second

// observeHeartbeat records the last heartbeat of the unit's robot. One in the future counts from when it is first
// seen: the clock of the server is ahead, and such a time would also count while no other heartbeat comes.
func (u *unitSighting) observeHeartbeat(now, at time.Time) {
	if !u.nextContact.IsZero() && !now.Before(u.nextContact.Add(contactSettles)) {
		u.lastContact, u.nextContact = u.nextContact, time.Time{}
	}
	if at.IsZero() || at.Equal(u.heartbeat) || !u.nextContact.IsZero() {
		return // later ones wait, or none would settle if they come fast
	}
	u.heartbeat, u.nextContact = at, at
	switch {
	case at.After(now):
		u.nextContact = now
	case !now.Before(at.Add(contactSettles)):
		u.lastContact, u.nextContact = at, time.Time{}
	}
}

// needsHeartbeat reports whether the health of a unit may depend on its last heartbeat. If it was updated, it
// remains so until its run changes, without another one.
func (s *sightings) needsHeartbeat(u *Unit) bool {
	was := s.units[u.Name]
	if was.hasState && was.state == StateUpdated {
		return false
	}
	return slices.ContainsFunc(u.Tasks, func(t Task) bool { return !t.RunsSince.IsZero() })
}

// countLoss records that contact was lost. Losses long before are forgotten.
func (u *unitSighting) countLoss(now time.Time) {
	if u.contactSince.IsZero() || now.Sub(u.contactSince) >= steadyContact {
		u.quickLosses = 0
	}
	u.quickLosses++
}

// recordStates records when units began to change. A unit that fails by its deadline is still changing.
func (s *sightings) recordStates(now time.Time, units []Unit, states []State) {
	for i := range states {
		u := s.units[units[i].Name]
		switch {
		case states[i] == StateUpdating && units[i].beginsToChange():
			u.changingSince = now
		case states[i] != StateUpdating && states[i] != StateFailed:
			u.changingSince = time.Time{}
		}
		if states[i] == StateHeld || states[i] == StateOutsideWindow {
			u.blockedAt = now
		}
		u.state, u.hasState = states[i], true
		s.units[units[i].Name] = u
	}
}

// recordUnreverted records how many units are left to return in a revert. Those that come and go are no progress.
func (s *sightings) recordUnreverted(now time.Time, left int) {
	if left == 0 || s.unreverted == 0 || left < s.unreverted {
		s.unreverted, s.returnedAt = left, now
	}
	if left == 0 {
		s.returnedAt = time.Time{}
	}
}
