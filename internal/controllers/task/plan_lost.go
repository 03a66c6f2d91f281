package task

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/demand"
	"k8s4r.io/k8s4r/internal/lifecycle"
	"k8s4r.io/k8s4r/internal/wire"
)

// ConditionContact is False from when a Task's robot was lost, or from when it
// waits for the end of an attempt that may still run.
const ConditionContact = "Contact"

// ReasonReinstated is that of a Task whose original counts again.
const ReasonReinstated = "Reinstated"

// defaultLostAfter is how long a task waits for a robot that is out of contact
// (docs/spec/job.md).
const defaultLostAfter = 5 * time.Minute

// retellLost is when to look again at a task that nobody could take now.
const retellLost = 30 * time.Second

// disconnect is what the job says of robots that are out of contact.
type disconnect struct {
	lostAfter time.Duration
	stopAfter time.Duration // after which the robot itself stops the task; 0: never
	replace   bool
	reconcile string
}

func (w *World) disconnect() disconnect {
	d := disconnect{lostAfter: defaultLostAfter, replace: true, reconcile: v1alpha1.KeepOriginal}
	if w.Job == nil || w.Job.Spec.Disconnect == nil {
		return d
	}
	said := w.Job.Spec.Disconnect
	if said.LostAfter != nil {
		d.lostAfter = said.LostAfter.Value()
	}
	if said.Replace != nil {
		d.replace = *said.Replace
	}
	d.stopAfter, d.reconcile = said.StopOnRobotAfter.Value(), or(said.Reconcile, d.reconcile)
	return d
}

// lost follows a task whose robot may be lost, and tells whether it is.
//
// A robot that is offline is. One whose last will has come is as soon as it has
// been away for as long as the job waits.
func (p *plan) lost() bool {
	if !p.robotLost() {
		if p.robotPhase() != lifecycle.RobotUnknown {
			return false
		}
		if at := p.lostSince().Add(p.disconnect().lostAfter); p.now.Before(at) {
			p.wake(at)
			return false
		}
	}
	if p.state != lifecycle.TaskUnknown {
		p.step(lifecycle.TaskLost, ReasonLost, "robot %s %s", p.lastRobot(), p.lostBecause())
		// Or the time of an earlier loss would count.
		meta.RemoveStatusCondition(&p.status.Conditions, ConditionContact)
		p.mark(ConditionContact, metav1.ConditionFalse, ReasonLost, p.status.Message)
		return true
	}
	if p.replaceable() {
		p.replace()
	}
	return true
}

// lostBecause is the rest of a sentence about the robot.
func (p *plan) lostBecause() string {
	switch {
	case p.Robot == nil:
		return "is gone"
	case p.Robot.Revoked():
		return "is revoked"
	}
	return "is out of contact"
}

// lostSince is when the robot was last heard.
func (p *plan) lostSince() time.Time {
	if p.Robot != nil {
		return lastHeard(p.Robot)
	}
	if c := meta.FindStatusCondition(p.status.Conditions, ConditionContact); c != nil && c.Status == metav1.ConditionFalse {
		return c.LastTransitionTime.Time
	}
	return p.now
}

// lastHeard is when the robot was last in contact. A connection that has ended
// says that to the second; silence is noticed only long after it has begun.
func lastHeard(r *v1alpha1.Robot) time.Time {
	c := meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionConnected)
	switch {
	case c != nil && c.Status == metav1.ConditionFalse && (c.Reason == v1alpha1.ReasonLastWill || c.Reason == v1alpha1.ReasonSignedOff):
		return c.LastTransitionTime.Time
	case r.Status.LastHeartbeatTime != nil:
		return r.Status.LastHeartbeatTime.Time
	}
	return r.CreationTimestamp.Time
}

// replaceable tells whether another robot may run the task now.
//
// After an outage of the broker or the server all robots are offline, and come
// back one after the other: who came first would be given the work of all
// others. So somebody must have been in contact for a while.
func (p *plan) replaceable() bool {
	d := p.disconnect()
	wished := p.Evict != ""
	if !p.byUs() || !d.replace && !wished {
		return false
	}
	due := p.lostSince().Add(d.lostAfter)
	if wished {
		due = p.now
	}
	if p.ContactSince.IsZero() {
		p.wake(p.now.Add(retellLost))
		return false
	}
	for _, at := range []time.Time{p.ContactSince.Add(p.Settle), p.fencedAt(p.Robot, p.lostSince())} {
		if at.After(due) {
			due = at
		}
	}
	if p.now.Before(due) {
		p.wake(due)
		return false
	}
	return true
}

// fencedAt is when a robot that is out of contact has certainly stopped the
// task by itself: of one that has no object any more, counted from last. Zero: it
// does not fence it.
func (p *plan) fencedAt(robot *v1alpha1.Robot, last time.Time) time.Time {
	stopAfter := p.disconnect().stopAfter
	if stopAfter == 0 {
		return time.Time{}
	}
	if robot != nil {
		last = lastHeard(robot)
		if at := robot.Status.AcknowledgedUntil; at != nil && at.After(last) {
			last = at.Time
		}
	}
	return last.Add(stopAfter + p.stopTime())
}

// replace lets another robot run the task. What runs on the lost one is the
// original: it may count again, unless the job prefers what replaces it. There
// is one original at a time, the first.
func (p *plan) replace() {
	robot, lost := p.lastRobot(), p.present()
	if !p.step(lifecycle.TaskReturn, ReasonLost, "Robot %s %s, another one is to run the task", robot, p.lostBecause()) {
		return
	}
	p.out.Warning = p.status.Message
	p.out.Fenced = p.disconnect().stopAfter > 0
	if lost != nil {
		if lost.FinishedAt == nil { // else it was reinstated to bring its end once more
			lost.State = string(lifecycle.TaskUnknown)
		}
		if p.status.Original == 0 && p.mayComeBack() {
			p.status.Original = lost.Attempt
		} else {
			supersede(lost)
		}
	}
	p.begin()
	p.mark(v1alpha1.ConditionPlaced, metav1.ConditionFalse, ReasonLost, p.status.Message)
}

// mayComeBack tells whether the lost attempt may count again. One that was to
// leave its robot anyway would be made to leave it once more, and of a document
// agent nobody would hear that it still runs.
func (p *plan) mayComeBack() bool {
	return p.Evict == "" && p.disconnect().reconcile != v1alpha1.KeepReplacement && (p.Robot == nil || !demand.Document(p.Robot))
}

// supersede closes the books on an attempt that never counts again. It may still
// run, until its robot has been told.
func supersede(a *v1alpha1.TaskAttempt) {
	if a.FinishedAt == nil && !timedOut(a) {
		a.State, a.Reason = string(lifecycle.TaskCanceled), wire.ReasonSuperseded
	}
}

// settle decides between an original whose robot has come back and what took
// its place. It tells whether there was something to decide.
//
// While the job holds it waits: the original runs on, as all that runs does.
func (p *plan) settle() bool {
	if p.status.Original == 0 {
		return false
	}
	o := p.status.Entry(p.status.Original)
	switch {
	case o == nil:
		p.disown(o)
	case o.FinishedAt == nil && o.State != string(lifecycle.TaskRunning):
		return false // it is still away
	case p.state == lifecycle.TaskPaused, p.state.Placeable() && p.jobState().Holds():
		return false
	case !inContact(p.Origin):
		// Its word came before the news that it is back, or it is gone again: what
		// is reinstated now would be lost at once.
		p.wake(p.now.Add(retell))
		return false
	case p.originalWins(o):
		p.reinstate(o)
	default:
		p.disown(o)
	}
	return true
}

// originalWins tells whether the original is to count again: always when it has
// brought the task to a good end, or nothing else runs; else by the job's
// reconcile mode (docs/spec/job.md).
func (p *plan) originalWins(o *v1alpha1.TaskAttempt) bool {
	replacement := p.present()
	switch {
	case o.FinishedAt != nil:
		return o.State == string(lifecycle.TaskCompleted) && !v1alpha1.KeptRunning(p.Task.Spec.Type)
	case p.Origin.Spec.Drain:
		return false // it would have to leave at once
	case p.state != lifecycle.TaskDispatching && p.state != lifecycle.TaskRunning || replacement == nil:
		return true
	}
	switch p.disconnect().reconcile {
	case v1alpha1.BestScore:
		return p.Better == o.Robot
	case v1alpha1.LongestRunning:
		return replacement.StartedAt == nil || o.StartedAt != nil && o.StartedAt.Before(replacement.StartedAt)
	}
	return true
}

// ReasonOriginalAway is that of a Task which has failed, unless its original
// completes.
const ReasonOriginalAway = "OriginalAway"

// originalPatience is how long a Task that has failed waits for its original
// (docs/spec/job.md).
const originalPatience = time.Hour

// awaitsOriginal keeps a task from failing for good while its original may still
// complete: an hour of good work was lost because what took its place met a broken
// robot. The wait is bounded, and of a robot without an object nothing comes.
func (p *plan) awaitsOriginal(because string) bool {
	o := p.status.Entry(p.status.Original)
	if o == nil || p.Origin == nil || o.FinishedAt != nil && !p.originalWins(o) {
		return false
	}
	if !p.placedIs(ReasonOriginalAway) {
		// Or the time of an earlier wait for a robot would count.
		meta.RemoveStatusCondition(&p.status.Conditions, v1alpha1.ConditionPlaced)
		p.mark(v1alpha1.ConditionPlaced, metav1.ConditionFalse, ReasonOriginalAway,
			fmt.Sprintf("%s; until %s its attempt %d on robot %s may still complete",
				because, p.now.Add(originalPatience).UTC().Format(time.RFC3339), o.Attempt, o.Robot))
	}
	c := meta.FindStatusCondition(p.status.Conditions, v1alpha1.ConditionPlaced)
	until := c.LastTransitionTime.Add(originalPatience)
	if !p.now.Before(until) {
		return false
	}
	p.wake(until)
	p.wake(p.now.Add(retellLost)) // its robot may be deleted
	return true
}

// reinstate lets the original count again. The robot is asked for it like for
// any attempt: its journal answers, and starts nothing.
func (p *plan) reinstate(o *v1alpha1.TaskAttempt) {
	replacement := p.present()
	if !p.step(lifecycle.TaskReinstate, ReasonReinstated, "Robot %s is back, and its attempt %d counts again", o.Robot, o.Attempt) {
		return
	}
	p.out.Note = p.status.Message
	if replacement != nil && replacement != o {
		supersede(replacement)
	}
	s := p.status
	s.Attempt, s.Original = o.Attempt, 0
	s.StartedAt, s.FinishedAt, s.ExitCode, s.Signal, s.Resources, s.Outputs = o.StartedAt, nil, nil, 0, nil, nil
	s.Restarts, s.RetryAt = nil, nil
	p.out.Rebind = &Placing{TargetRobot: o.Robot, ByUs: true}
	p.placed(o.Robot)
}

// disown lets the original count no more. Its robot learns that from its list.
func (p *plan) disown(o *v1alpha1.TaskAttempt) {
	p.status.Original, p.out.Status = 0, p.status
	p.out.Why = append(p.out.Why, "the original does not count again")
	if o != nil {
		supersede(o)
	}
}

// ReasonStillRunning is that of a Task that waits for the end of an attempt which
// its robot is to stop by itself.
const ReasonStillRunning = "StillRunning"

// runsElsewhere keeps a task from its seat while it waits for the end of another
// attempt. The scheduler keeps no robot for it meanwhile.
func (p *plan) runsElsewhere() bool {
	if p.waitsForEnd() {
		return true
	}
	if stillRunning(p.Task) {
		p.mark(v1alpha1.ConditionPlaced, metav1.ConditionFalse, ReasonReturned, "no other attempt runs any more")
		return true
	}
	return false
}

// waitsForEnd keeps a task waiting of which an attempt may still run, if two of
// them never may: until its robot has certainly stopped it, or has said that it
// has ended.
func (p *plan) waitsForEnd() bool {
	missed := p.missedSince()
	for _, e := range p.Elsewhere {
		until := p.fencedAt(e.Robot, missed)
		if !inContact(e.Robot) && !p.now.Before(until) {
			continue
		}
		if p.wake(p.now.Add(retell)); !inContact(e.Robot) {
			p.wake(until)
		}
		p.mark(v1alpha1.ConditionPlaced, metav1.ConditionFalse, ReasonStillRunning,
			fmt.Sprintf("its attempt %d may still run on robot %s", e.Attempt, e.Name))
		return true
	}
	return false
}

// missedSince is since when just these attempts may still run on robots that have
// no object any more. Zero: there are none. It is written down, with their
// numbers, so that the wait for them ends, and the next one does not count from it.
func (p *plan) missedSince() time.Time {
	var attempts []string
	for _, e := range p.Elsewhere {
		if e.Robot == nil {
			attempts = append(attempts, fmt.Sprintf("attempt %d on %s", e.Attempt, e.Name))
		}
	}
	why := "may still run: " + strings.Join(attempts, ", ")
	c := meta.FindStatusCondition(p.status.Conditions, ConditionContact)
	written := c != nil && c.Reason == ReasonStillRunning
	switch {
	case len(attempts) == 0 && !written:
		return time.Time{}
	case written && c.Message == why:
		return c.LastTransitionTime.Time
	}
	meta.RemoveStatusCondition(&p.status.Conditions, ConditionContact)
	if p.out.Status = p.status; len(attempts) == 0 {
		return time.Time{} // their robots have objects again
	}
	p.mark(ConditionContact, metav1.ConditionFalse, ReasonStillRunning, why)
	return p.now
}

// inContact is false for a robot that has no object.
func inContact(r *v1alpha1.Robot) bool {
	return r != nil && demand.Phase(r) == lifecycle.RobotOnline
}

// stillRunning tells whether the Task waits for the end of another attempt.
func stillRunning(t *v1alpha1.Task) bool { return unplacedFor(&t.Status, ReasonStillRunning) }

// placedIs tells whether the Task is known to have no robot for this reason.
func (p *plan) placedIs(reason string) bool { return unplacedFor(p.status, reason) }

func unplacedFor(s *v1alpha1.TaskStatus, reason string) bool {
	c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionPlaced)
	return c != nil && c.Status == metav1.ConditionFalse && c.Reason == reason
}
