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

// ConditionRobotReachable is False from the time at which a Task's robot was lost. While the Task
// waits for other attempts, it is False if the robot of one of them was deleted.
const ConditionRobotReachable = "RobotReachable"

// ReasonLostAttemptRestored is the reason of a Task whose lost attempt became the current one again.
const ReasonLostAttemptRestored = "LostAttemptRestored"

// defaultLostAfter is how long a task waits for a disconnected robot (docs/reference/kinds/job.md).
const defaultLostAfter = 5 * time.Minute

// lostRecheckInterval is the delay of the next plan for a task while no robot is online.
const lostRecheckInterval = 30 * time.Second

// disconnectSettings is spec.disconnect of the job with its defaults.
type disconnectSettings struct {
	lostAfter time.Duration
	stopAfter time.Duration // after which the robot itself stops the task; 0: never
	replace   bool
	reconcile string
}

// disconnectPolicy returns spec.disconnect of the job, with defaults for unset fields.
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

// handleLostRobot handles a task whose robot is lost, or has not answered its dispatch in time.
func (p *planner) handleLostRobot() bool {
	reason := p.lossReason()
	switch {
	case reason == "":
		return false
	case p.state != lifecycle.TaskUnknown:
		p.sendSignal(lifecycle.TaskLost, reason, "robot %s %s", p.lastRobot(), p.describeLoss())
		p.recordLoss(reason)
	case reason == v1alpha1.ReasonDispatchTimeout && p.status.Reason != reason:
		// The robot was lost, has reconnected, and does not answer.
		p.status.Reason, p.status.Message = reason, fmt.Sprintf("robot %s %s", p.lastRobot(), p.describeLoss())
		p.addReason(p.status.Message)
		p.recordLoss(reason)
	default:
		if p.canReplaceNow() {
			p.replaceLostAttempt()
		}
	}
	return true
}

// lossReason returns why the robot is lost for the task, or "" if it is not. A robot in phase
// Unknown is lost after it has been disconnected for disconnect.lostAfter of the job.
func (p *planner) lossReason() string {
	switch {
	case p.hasDispatchTimedOut() && p.status.StartedAt == nil:
		return v1alpha1.ReasonDispatchTimeout
	case p.hasDispatchTimedOut(), p.isRobotLost():
		return ReasonLost // an attempt that has started may still be running, and may be restored
	case p.robotPhase() != lifecycle.RobotUnknown:
		return ""
	}
	if at := p.lostSince().Add(p.disconnectPolicy().lostAfter); p.now.Before(at) {
		p.requeueAt(at)
		return ""
	}
	return ReasonLost
}

// hasDispatchTimedOut reports whether the connected robot has not answered the last dispatch of the
// current attempt in time. The server decides it, because it knows what it could send.
func (p *planner) hasDispatchTimedOut() bool {
	return meta.IsStatusConditionFalse(p.status.Conditions, v1alpha1.ConditionAccepted)
}

// recordLoss records since when the robot is lost for the task, and why.
func (p *planner) recordLoss(reason string) {
	if !p.hasDispatchTimedOut() {
		p.forgetAcceptance() // the dispatch is repeated when the robot reconnects
	}
	p.restartCondition(ConditionRobotReachable, metav1.ConditionFalse, reason, p.status.Message)
}

// forgetAcceptance removes the condition Accepted, which applies to one dispatch.
func (p *planner) forgetAcceptance() {
	meta.RemoveStatusCondition(&p.status.Conditions, v1alpha1.ConditionAccepted)
}

// describeLoss returns why the robot is lost, as the predicate of a sentence about it.
func (p *planner) describeLoss() string {
	switch {
	case p.hasDispatchTimedOut():
		return "is connected but has not answered the dispatch in time"
	case p.Robot == nil:
		return "no longer exists"
	case p.Robot.IsRevoked():
		return "is revoked"
	}
	return "is disconnected"
}

// lostSince returns since when the robot is out of contact. A robot that does not answer is lost
// since the first dispatch.
func (p *planner) lostSince() time.Time {
	if p.hasDispatchTimedOut() {
		return p.now.Add(-p.Unanswered)
	}
	return p.now.Add(-p.Contact.Silence)
}

// lastSeen returns when the robot was last known to be connected, by the server's clock: when its
// connection ended, or when its last heartbeat was received if the connection broke without notice.
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
// After an outage of the broker or the server all robots are offline and reconnect one by one. To
// keep the first from getting the tasks of all others, RecoveryTime must have passed since then.
func (p *planner) canReplaceNow() bool {
	d := p.disconnectPolicy()
	evicts := p.mustLeave()
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
	for _, at := range []time.Time{p.OnlineSince.Add(p.RecoveryTime), p.selfStopTime(p.Contact)} {
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

// selfStopTime returns when a robot that is out of contact must have stopped the task by itself, or
// zero if it never does.
func (p *planner) selfStopTime(robot Contact) time.Time {
	stopAfter := p.disconnectPolicy().stopAfter
	if stopAfter == 0 {
		return time.Time{}
	}
	return p.now.Add(stopAfter + p.stopTime() - robot.sinceHeartbeat())
}

// replaceLostAttempt lets another robot run the task. The attempt on the lost robot becomes the lost
// attempt if it may be restored and there is none yet. Otherwise it is superseded.
func (p *planner) replaceLostAttempt() {
	robot, lost, reason := p.lastRobot(), p.currentAttempt(), p.status.Reason
	if !p.sendSignal(lifecycle.TaskInterrupted, reason, "Robot %s %s; another robot will run the task", robot, p.describeLoss()) {
		return
	}
	p.actions.WarningEvent = p.status.Message
	p.actions.ReliesOnSelfStop = p.disconnectPolicy().stopAfter > 0
	if lost != nil {
		if lost.FinishedAt == nil { // otherwise it was restored after its end, and its robot was lost before repeating the report
			lost.State = string(lifecycle.TaskUnknown)
		}
		if p.status.LostAttempt == 0 && p.canRestoreLater() {
			p.status.LostAttempt = lost.Attempt
		} else {
			supersedeAttempt(lost)
		}
	}
	p.clearAttempt()
	p.setCondition(v1alpha1.ConditionPlaced, metav1.ConditionFalse, reason, p.status.Message)
}

// canRestoreLater reports whether the attempt may be restored when its robot reconnects. A task that
// is being evicted would have to leave the robot again, a robot that does not answer was asked not
// to start it, and a legacy agent does not report which attempts still run.
func (p *planner) canRestoreLater() bool {
	return !p.mustLeave() && p.status.Reason != v1alpha1.ReasonDispatchTimeout && p.disconnectPolicy().reconcile != v1alpha1.ReconcileKeepReplacement &&
		(p.Robot == nil || !apiconv.HasLegacyAgent(p.Robot))
}

// supersedeAttempt marks an attempt that never becomes the current one again. It may still be
// running until its robot receives the next task list.
func supersedeAttempt(a *v1alpha1.TaskAttempt) {
	if a.FinishedAt == nil && !isTimedOut(a) {
		a.State, a.Reason = string(lifecycle.TaskCanceled), wire.ReasonSuperseded
	}
}

// reconcileLostAttempt decides between a lost attempt whose robot has reconnected and its
// replacement. While the job pauses, the decision is postponed and the lost attempt keeps running.
func (p *planner) reconcileLostAttempt() bool {
	if p.status.LostAttempt == 0 {
		return false
	}
	o := p.status.FindAttempt(p.status.LostAttempt)
	switch {
	case o == nil:
		p.discardLostAttempt(o)
	case o.FinishedAt == nil && o.State != string(lifecycle.TaskRunning):
		return false // its robot has not reported it yet
	case p.state == lifecycle.TaskPaused, p.state.IsPlaceable() && p.jobState().PausesTasks():
		return false
	case !isOnline(p.LostAttemptRobot):
		// The report arrived before the heartbeat, or the robot is offline again: an attempt that
		// is restored now would be lost at once. The watch of the robot is earlier.
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
// completed or its replacement does not run, otherwise by the job's reconcile mode
// (docs/reference/kinds/job.md).
func (p *planner) isLostAttemptPreferred(o *v1alpha1.TaskAttempt) bool {
	replacement := p.currentAttempt()
	switch {
	case o.FinishedAt != nil:
		return o.State == string(lifecycle.TaskCompleted) && !v1alpha1.IsKeptRunning(p.Task.Spec.Type)
	case p.LostAttemptRobot.Spec.Drain:
		return false // it would be evicted at once
	case p.state != lifecycle.TaskDispatching && p.state != lifecycle.TaskRunning || replacement == nil:
		return true
	}
	switch p.disconnectPolicy().reconcile {
	case v1alpha1.ReconcileBestScore:
		return p.BetterRobot == o.Robot
	case v1alpha1.ReconcileLongestRunning:
		return runsLonger(o, replacement)
	}
	return true
}

// runsLonger reports whether the process of attempt a runs for longer than that of b, or b has none.
func runsLonger(a, b *v1alpha1.TaskAttempt) bool {
	switch {
	case b.NextRunAt != nil || b.StartedAt == nil:
		return true
	case a.NextRunAt != nil || a.StartedAt == nil:
		return false
	}
	return taskstate.LastRunStart(a).Before(taskstate.LastRunStart(b))
}

// lostAttemptTimeout is how long a Task whose replacement has failed waits for its lost attempt
// (docs/reference/kinds/job.md).
const lostAttemptTimeout = time.Hour

// awaitLostAttempt keeps a task from failing for good while its lost attempt may still complete, and
// reports whether it does. Otherwise hours of work would be lost because its replacement got a broken
// robot. The wait is bounded, and skipped if the robot's object was deleted.
func (p *planner) awaitLostAttempt(because string) bool {
	o := p.status.FindAttempt(p.status.LostAttempt)
	if o == nil || p.LostAttemptRobot == nil || o.FinishedAt != nil && !p.isLostAttemptPreferred(o) {
		return false
	}
	if !p.isUnplacedFor(taskstate.ReasonAwaitingLostAttempt) {
		p.restartCondition(v1alpha1.ConditionPlaced, metav1.ConditionFalse, taskstate.ReasonAwaitingLostAttempt,
			fmt.Sprintf("%s; waiting until %s for attempt %d on robot %s to complete",
				because, p.now.Add(lostAttemptTimeout).UTC().Format(time.RFC3339), o.Attempt, o.Robot))
	}
	c := meta.FindStatusCondition(p.status.Conditions, v1alpha1.ConditionPlaced)
	until := c.LastTransitionTime.Add(lostAttemptTimeout)
	if !p.now.Before(until) {
		return false
	}
	p.requeueAt(until)
	p.requeueAt(p.now.Add(lostRecheckInterval)) // no watch event reports that its robot was deleted
	return true
}

// restoreLostAttempt makes the lost attempt the current one. Its dispatch is repeated; the agent
// knows the attempt from its journal and reports it without starting anything.
func (p *planner) restoreLostAttempt(o *v1alpha1.TaskAttempt) {
	replacement := p.currentAttempt()
	if !p.sendSignal(lifecycle.TaskRestore, ReasonLostAttemptRestored, "Robot %s reconnected; its attempt %d was restored", o.Robot, o.Attempt) {
		return
	}
	p.actions.NormalEvent = p.status.Message
	if replacement != nil && replacement != o {
		supersedeAttempt(replacement)
	}
	s := p.status
	if replacement != o {
		taskstate.AddRestarts(s, replacement)
	}
	s.Attempt, s.LostAttempt = o.Attempt, 0
	s.StartedAt, s.FinishedAt, s.ExitCode, s.Signal, s.Resources = taskstate.LastRunStart(o), nil, nil, 0, nil
	s.Restarts, s.RetryAt, s.PauseAttempt = nil, nil, 0
	p.clearOutputs()
	p.forgetAcceptance()
	p.actions.Rebind = &RobotBinding{TargetRobot: o.Robot, ChosenByManager: true}
	p.setPlaced(o.Robot)
}

// discardLostAttempt gives up the lost attempt. Its robot stops it when it receives the next task
// list. If o is nil, the attempt is no longer in status.attempts.
func (p *planner) discardLostAttempt(o *v1alpha1.TaskAttempt) {
	p.status.LostAttempt = 0
	p.writeStatus()
	p.addReason("discard the lost attempt")
	if o == nil {
		return
	}
	supersedeAttempt(o)
	if o.Attempt != p.status.Attempt { // otherwise they count when the next attempt is opened
		taskstate.AddRestarts(p.status, o)
	}
}

// awaitOtherAttempts keeps a task waiting while another attempt may still be running. The scheduler
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

// awaitAttemptEnd keeps a task waiting whose attempts must never overlap, until the robots of its
// other attempts must have stopped them or have reported their end.
func (p *planner) awaitAttemptEnd() bool {
	p.recordMissingRobots()
	for _, e := range p.OtherAttempts {
		until := p.selfStopTime(e.Contact)
		if !isOnline(e.Robot) && !p.now.Before(until) {
			continue
		}
		if p.requeueAt(p.now.Add(recheckInterval)); !isOnline(e.Robot) {
			p.requeueAt(until)
		}
		p.setCondition(v1alpha1.ConditionPlaced, metav1.ConditionFalse, taskstate.ReasonAwaitingOtherAttempts,
			fmt.Sprintf("attempt %d may still be running on robot %s", e.Attempt, e.Name))
		return true
	}
	return false
}

// recordMissingRobots records for the other attempts since when their robots have had no object, and
// shows these attempts in a condition. A robot without an object sends no report.
func (p *planner) recordMissingRobots() {
	var missing []string
	for _, e := range p.OtherAttempts {
		a := p.status.FindAttempt(e.Attempt)
		switch {
		case a == nil:
		case e.Robot == nil && a.RobotMissingSince == nil:
			at := metav1.NewMicroTime(p.now)
			a.RobotMissingSince = &at
			p.writeStatus()
		case e.Robot != nil && a.RobotMissingSince != nil:
			a.RobotMissingSince = nil
			p.writeStatus()
		}
		if e.Robot == nil {
			missing = append(missing, fmt.Sprintf("attempt %d on robot %s", e.Attempt, e.Name))
		}
	}
	c := meta.FindStatusCondition(p.status.Conditions, ConditionRobotReachable)
	switch {
	case len(missing) > 0:
		p.setCondition(ConditionRobotReachable, metav1.ConditionFalse, taskstate.ReasonAwaitingOtherAttempts,
			"may still be running, although the robot was deleted: "+strings.Join(missing, ", "))
	case c != nil && c.Reason == taskstate.ReasonAwaitingOtherAttempts:
		meta.RemoveStatusCondition(&p.status.Conditions, ConditionRobotReachable)
		p.writeStatus()
	}
}
