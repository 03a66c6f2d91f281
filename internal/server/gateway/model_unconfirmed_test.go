package gateway

import (
	"testing"

	"pgregory.net/rapid"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/task"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
)

const (
	forgetsStops    brokenRule = "the manager ends a task without its robot and does not record that"
	ignoresCanceled brokenRule = "the agent does not answer for the canceled attempts that its list names"
	neverConfirms   brokenRule = "the manager does not notice that a robot has reported the end"
	keepsCount      brokenRule = "the group that has ended still counts the stops that were confirmed since"
)

// TestStopsAreConfirmed cancels jobs while robots are out of contact. A task shows that its process may still
// run for as long as it does, and no longer once all robots are back.
func TestStopsAreConfirmed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t)
		m.runCancels()
		m.settleWithoutFailures()
	})
}

// TestModelFindsBrokenRulesOfStops breaks each rule in turn, and expects a violation of the invariants.
func TestModelFindsBrokenRulesOfStops(t *testing.T) {
	expectViolations(t, func(t *rapid.T, rule brokenRule) bool {
		m := newModel(t)
		m.broken = rule
		return findsViolation(func() {
			m.runCancels()
			m.settleWithoutFailures()
		})
	}, forgetsStops, ignoresCanceled, neverConfirms, keepsCount)
}

// runCancels disconnects robots while a job starts, cancels it, and sometimes requeues it.
func (m *model) runCancels() {
	for range rapid.IntRange(1, 4).Draw(m.t, "rounds") {
		for range rapid.IntRange(1, 8).Draw(m.t, "events before") {
			m.runEvent()
			m.checkInvariants()
		}
		for range rapid.IntRange(1, 2).Draw(m.t, "disconnects") {
			m.withOneRobot(m.disconnect)
		}
		m.updateJobSpec(func(s *robotv1.JobSpec) { s.DesiredState = robotv1.DesiredCanceled })
		for range rapid.IntRange(1, 3).Draw(m.t, "ticks until the robots are back") {
			m.settle()
			m.checkInvariants()
			m.passTime(tick)
		}
		m.withOneRobot(m.connect)
		if rapid.Bool().Draw(m.t, "requeues") {
			m.cancelAndRequeue()
		}
		m.checkInvariants()
	}
}

// breakStops changes what the manager writes if a rule about unconfirmed stops is broken.
func (m *model) breakStops(seen, next *robotv1.TaskStatus) {
	switch {
	case next == nil:
	case m.broken == forgetsStops:
		next.UnconfirmedStop = nil
	case m.broken == neverConfirms && seen.UnconfirmedStop != nil:
		next.UnconfirmedStop = seen.UnconfirmedStop
	}
}

// openAttempts returns the attempts of a task that have not ended, with their robots.
func (m *model) openAttempts(t *robotv1.Task) (open []task.OtherAttempt) {
	for _, a := range t.Status.Attempts {
		if a.FinishedAt == nil && a.Robot != "" {
			open = append(open, task.OtherAttempt{Attempt: a.Attempt, Name: a.Robot, Robot: m.robots[a.Robot]})
		}
	}
	return open
}

// checkUnconfirmedStops fails the test if an attempt of a canceled task may still be running, because its
// process has not ended on a robot, and the task does not show it.
func (m *model) checkUnconfirmedStops() {
	for _, name := range m.taskNames() {
		t := m.tasks[name]
		if lifecycle.TaskState(t.Status.State) != lifecycle.TaskCanceled || t.Status.UnconfirmedStop != nil {
			continue
		}
		for _, id := range m.robotIDs() {
			if run := m.agents[id].live[string(t.UID)]; run != nil && t.Status.FindAttempt(run.attempt) != nil {
				m.failWithHistory("%s is canceled without an unconfirmed stop, while attempt %d of it runs on %s", name, run.attempt, id)
			}
		}
	}
}

// hasUnconfirmedStops reports whether a task, its group or the job shows a stop that a robot has not
// confirmed, other than a robot that stays silent.
func (m *model) hasUnconfirmedStops() bool {
	silent := false
	for _, name := range m.taskNames() {
		u := m.tasks[name].Status.UnconfirmedStop
		switch {
		case u == nil:
		case m.agents[u.Robot].silent:
			silent = true
		default:
			return true
		}
	}
	return !silent && (m.job.Status.UnconfirmedStops > 0 || m.groups["g"].Status.UnconfirmedStops > 0)
}
