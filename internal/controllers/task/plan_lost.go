package task

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/placement/apiconv"
	"k8s4r.io/k8s4r/internal/core/taskstate"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// ConditionRobotReachable is False from when a Task's robot was lost, or from when it
// waits for the end of an attempt that may still run.
const ConditionRobotReachable = "RobotReachable"

// ReasonLostAttemptRestored is the reason of a Task whose lost attempt is the current one again.
const ReasonLostAttemptRestored = "LostAttemptRestored"

// defaultLostAfter is how long a task waits for a disconnected robot (docs/reference/kinds/job.md).
const defaultLostAfter = 5 * time.Minute

// lostRecheckInterval is when to plan again for a task that no robot could take now.
const lostRecheckInterval = 30 * time.Second

// disconnectSettings is what the job configures for disconnected robots.
type disconnectSettings struct {
	lostAfter time.Duration
	stopAfter time.Duration // after which the robot itself stops the task; 0: never
	replace   bool
	reconcile string
}

func (w *Input) disconnectPolicy() disconnectSettings {
	d := disconnectSettings{lostAfter: defaultLostAfter, replace: true, reconcile: v1alpha1.ReconcileKeepOriginal}
	if w.Job == nil || w.Job.Spec.Disconnect == nil {
		return d
	}
	settings := w.Job.Spec.Disconnect
	if settings.LostAfter != nil {
		d.lostAfter = settings.LostAfter.Value()
	}
	if settings.Replace != nil {
		d.replace = *settings.Replace
	}
	d.stopAfter, d.reconcile = settings.StopOnRobotAfter.Value(), firstNonEmpty(settings.Reconcile, d.reconcile)
	return d
}

// handleLostRobot follows a task whose robot is lost. A robot in phase Unknown is lost once it has
// been disconnected for the job's lostAfter.
func (p *planner) handleLostRobot() bool {
	if !p.isRobotLost() {
		if p.robotPhase() != lifecycle.RobotUnknown {
			return false
		}
		if at := p.lostSince().Add(p.disconnectPolicy().lostAfter); p.now.Before(at) {
			p.requeueAt(at)
			return false
		}
	}
	if p.state != lifecycle.TaskUnknown {
		p.sendSignal(lifecycle.TaskLost, ReasonLost, "robot %s %s", p.lastRobot(), p.describeLoss())
		p.restartCondition(ConditionRobotReachable, metav1.ConditionFalse, ReasonLost, p.status.Message)
		return true
	}
	if p.canReplaceNow() {
		p.replaceLostAttempt()
	}
	return true
}

// describeLoss returns the rest of a sentence about the robot.
func (p *planner) describeLoss() string {
	switch {
	case p.Robot == nil:
		return "is gone"
	case p.Robot.IsRevoked():
		return "is revoked"
	}
	return "is disconnected"
}

// lostSince returns when the robot was last seen.
func (p *planner) lostSince() time.Time {
	if p.Robot != nil {
		return lastSeen(p.Robot)
	}
	if c := meta.FindStatusCondition(p.status.Conditions, ConditionRobotReachable); c != nil && c.Status == metav1.ConditionFalse {
		return c.LastTransitionTime.Time
	}
	return p.now
}

// lastSeen returns when the robot was last connected. The end of a connection has an exact time;
// silence is noticed only long after it has begun.
func lastSeen(r *v1alpha1.Robot) time.Time {
	c := meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionConnected)
	switch {
	case c != nil && c.Status == metav1.ConditionFalse && (c.Reason == v1alpha1.ReasonLastWill || c.Reason == v1alpha1.ReasonDisconnected):
		return c.LastTransitionTime.Time
	case r.Status.LastHeartbeatTime != nil:
		return r.Status.LastHeartbeatTime.Time
	}
	return r.CreationTimestamp.Time
}

// canReplaceNow reports whether another robot may run the task now.
//
// After an outage of the broker or the server all robots are offline and come back one by one. The
// first would be given the work of all others, so some robot must have been online for a while.
func (p *planner) canReplaceNow() bool {
	d := p.disconnectPolicy()
	evicts := p.EvictionReason != ""
	if !p.canChangeRobot() || !d.replace && !evicts {
		return false
	}
	due := p.lostSince().Add(d.lostAfter)
	if evicts {
		due = p.now
	}
	if p.OnlineSince.IsZero() {
		p.requeueAt(p.now.Add(lostRecheckInterval))
		return false
	}
	for _, at := range []time.Time{p.OnlineSince.Add(p.RecoveryTime), p.selfStopDeadline(p.Robot, p.lostSince())} {
		if at.After(due) {
			due = at
		}
	}
	if p.now.Before(due) {
		p.requeueAt(due)
		return false
	}
	return true
}

// selfStopDeadline returns when a disconnected robot has certainly stopped the task by itself, or
// zero if it does not. If the robot has no object any more, it counts from last.
func (p *planner) selfStopDeadline(robot *v1alpha1.Robot, last time.Time) time.Time {
	stopAfter := p.disconnectPolicy().stopAfter
	if stopAfter == 0 {
		return time.Time{}
	}
	if robot != nil {
		last = lastSeen(robot)
		if at := robot.Status.AcknowledgedUntil; at != nil && at.After(last) {
			last = at.Time
		}
	}
	return last.Add(stopAfter + p.stopTime())
}

// replaceLostAttempt lets another robot run the task. The attempt on the lost robot may be
// restored, unless the job prefers its replacement. Only the first lost attempt is kept.
func (p *planner) replaceLostAttempt() {
	robot, lost := p.lastRobot(), p.currentAttempt()
	if !p.sendSignal(lifecycle.TaskInterrupted, ReasonLost, "Robot %s %s; another robot will run the task", robot, p.describeLoss()) {
		return
	}
	p.actions.WarningEvent = p.status.Message
	p.actions.ReliesOnSelfStop = p.disconnectPolicy().stopAfter > 0
	if lost != nil {
		if lost.FinishedAt == nil { // else it was restored to report its end once more
			lost.State = string(lifecycle.TaskUnknown)
		}
		if p.status.LostAttempt == 0 && p.canLostAttemptReturn() {
			p.status.LostAttempt = lost.Attempt
		} else {
			supersedeAttempt(lost)
		}
	}
	p.clearAttempt()
	p.setCondition(v1alpha1.ConditionPlaced, metav1.ConditionFalse, ReasonLost, p.status.Message)
}

// canLostAttemptReturn reports whether the lost attempt may be restored. A task that was to leave
// the robot anyway would have to leave it once more, and a legacy agent does not report that it
// still runs.
func (p *planner) canLostAttemptReturn() bool {
	return p.EvictionReason == "" && p.disconnectPolicy().reconcile != v1alpha1.ReconcileKeepReplacement && (p.Robot == nil || !apiconv.HasLegacyAgent(p.Robot))
}

// supersedeAttempt marks an attempt that never becomes the current one again. It may still run
// until its robot has received the stop.
func supersedeAttempt(a *v1alpha1.TaskAttempt) {
	if a.FinishedAt == nil && !isTimedOut(a) {
		a.State, a.Reason = string(lifecycle.TaskCanceled), wire.ReasonSuperseded
	}
}

// reconcileLostAttempt decides between a lost attempt whose robot is back and its replacement.
// While the job pauses it waits: the lost attempt runs on, like all that runs.
func (p *planner) reconcileLostAttempt() bool {
	if p.status.LostAttempt == 0 {
		return false
	}
	o := p.status.FindAttempt(p.status.LostAttempt)
	switch {
	case o == nil:
		p.discardLostAttempt(o)
	case o.FinishedAt == nil && o.State != string(lifecycle.TaskRunning):
		return false // it is still away
	case p.state == lifecycle.TaskPaused, p.state.IsPlaceable() && p.jobState().PausesTasks():
		return false
	case !isOnline(p.LostAttemptRobot):
		// Its report arrived before its heartbeat, or it is offline again: an attempt
		// restored now would be lost at once.
		p.requeueAt(p.now.Add(recheckInterval))
		return false
	case p.isLostAttemptPreferred(o):
		p.restoreLostAttempt(o)
	default:
		p.discardLostAttempt(o)
	}
	return true
}

// isLostAttemptPreferred reports whether the lost attempt becomes the current one: always if it has
// completed or nothing else runs, otherwise by the job's reconcile mode
// (docs/reference/kinds/job.md).
func (p *planner) isLostAttemptPreferred(o *v1alpha1.TaskAttempt) bool {
	replacement := p.currentAttempt()
	switch {
	case o.FinishedAt != nil:
		return o.State == string(lifecycle.TaskCompleted) && !v1alpha1.IsKeptRunning(p.Task.Spec.Type)
	case p.LostAttemptRobot.Spec.Drain:
		return false // it would have to leave at once
	case p.state != lifecycle.TaskDispatching && p.state != lifecycle.TaskRunning || replacement == nil:
		return true
	}
	switch p.disconnectPolicy().reconcile {
	case v1alpha1.ReconcileBestScore:
		return p.BetterRobot == o.Robot
	case v1alpha1.ReconcileLongestRunning:
		return replacement.StartedAt == nil || o.StartedAt != nil && o.StartedAt.Before(replacement.StartedAt)
	}
	return true
}

// lostAttemptTimeout is how long a Task that has failed waits for its lost attempt
// (docs/reference/kinds/job.md).
const lostAttemptTimeout = time.Hour

// awaitsLostAttempt keeps a task from failing for good while its lost attempt may still complete:
// an hour of work must not be lost because the replacement met a broken robot. The wait is bounded,
// and there is none for a robot without an object.
func (p *planner) awaitsLostAttempt(because string) bool {
	o := p.status.FindAttempt(p.status.LostAttempt)
	if o == nil || p.LostAttemptRobot == nil || o.FinishedAt != nil && !p.isLostAttemptPreferred(o) {
		return false
	}
	if !p.isUnplacedFor(taskstate.ReasonAwaitingLostAttempt) {
		p.restartCondition(v1alpha1.ConditionPlaced, metav1.ConditionFalse, taskstate.ReasonAwaitingLostAttempt,
			fmt.Sprintf("%s; until %s its attempt %d on robot %s may still complete",
				because, p.now.Add(lostAttemptTimeout).UTC().Format(time.RFC3339), o.Attempt, o.Robot))
	}
	c := meta.FindStatusCondition(p.status.Conditions, v1alpha1.ConditionPlaced)
	until := c.LastTransitionTime.Add(lostAttemptTimeout)
	if !p.now.Before(until) {
		return false
	}
	p.requeueAt(until)
	p.requeueAt(p.now.Add(lostRecheckInterval)) // its robot may be deleted
	return true
}

// restoreLostAttempt makes the lost attempt the current one. The task is dispatched to its robot
// again, whose journal answers without starting anything.
func (p *planner) restoreLostAttempt(o *v1alpha1.TaskAttempt) {
	replacement := p.currentAttempt()
	if !p.sendSignal(lifecycle.TaskRestore, ReasonLostAttemptRestored, "Robot %s is back, and its attempt %d was restored", o.Robot, o.Attempt) {
		return
	}
	p.actions.NormalEvent = p.status.Message
	if replacement != nil && replacement != o {
		supersedeAttempt(replacement)
	}
	s := p.status
	s.Attempt, s.LostAttempt = o.Attempt, 0
	s.StartedAt, s.FinishedAt, s.ExitCode, s.Signal, s.Resources, s.Outputs = o.StartedAt, nil, nil, 0, nil, nil
	s.Restarts, s.RetryAt = nil, nil
	p.actions.Rebind = &RobotBinding{TargetRobot: o.Robot, ChosenByManager: true}
	p.setPlaced(o.Robot)
}

// discardLostAttempt gives up the lost attempt. Its robot stops it with the next task list.
func (p *planner) discardLostAttempt(o *v1alpha1.TaskAttempt) {
	p.status.LostAttempt, p.actions.Status = 0, p.status
	p.actions.Reasons = append(p.actions.Reasons, "discard the lost attempt")
	if o != nil {
		supersedeAttempt(o)
	}
}

// awaitOtherAttempts keeps a task from its robot while another attempt may still run. The scheduler
// reserves no robot for it meanwhile.
func (p *planner) awaitOtherAttempts() bool {
	if p.awaitAttemptEnd() {
		return true
	}
	if taskstate.AwaitsOtherAttempt(p.Task) {
		p.setCondition(v1alpha1.ConditionPlaced, metav1.ConditionFalse, ReasonInterrupted, "no other attempt is running")
		return true
	}
	return false
}

// awaitAttemptEnd keeps a task waiting that must never run twice at a time, until the robots of its
// other attempts have certainly stopped them or have reported their end.
func (p *planner) awaitAttemptEnd() bool {
	missed := p.deletedRobotsSince()
	for _, e := range p.OtherAttempts {
		until := p.selfStopDeadline(e.Robot, missed)
		if !isOnline(e.Robot) && !p.now.Before(until) {
			continue
		}
		if p.requeueAt(p.now.Add(recheckInterval)); !isOnline(e.Robot) {
			p.requeueAt(until)
		}
		p.setCondition(v1alpha1.ConditionPlaced, metav1.ConditionFalse, taskstate.ReasonAwaitingOtherAttempts,
			fmt.Sprintf("its attempt %d may still run on robot %s", e.Attempt, e.Name))
		return true
	}
	return false
}

// deletedRobotsSince returns since when exactly these attempts may run on robots without an object,
// or zero if there are none. The time is stored with their numbers, so that the wait ends and the
// next one starts anew.
func (p *planner) deletedRobotsSince() time.Time {
	var attempts []string
	for _, e := range p.OtherAttempts {
		if e.Robot == nil {
			attempts = append(attempts, fmt.Sprintf("attempt %d on %s", e.Attempt, e.Name))
		}
	}
	why := "may still run: " + strings.Join(attempts, ", ")
	c := meta.FindStatusCondition(p.status.Conditions, ConditionRobotReachable)
	written := c != nil && c.Reason == taskstate.ReasonAwaitingOtherAttempts
	switch {
	case len(attempts) == 0 && !written:
		return time.Time{}
	case written && c.Message == why:
		return c.LastTransitionTime.Time
	}
	meta.RemoveStatusCondition(&p.status.Conditions, ConditionRobotReachable)
	if p.actions.Status = p.status; len(attempts) == 0 {
		return time.Time{} // their robots have objects again
	}
	p.setCondition(ConditionRobotReachable, metav1.ConditionFalse, taskstate.ReasonAwaitingOtherAttempts, why)
	return p.now
}
