package task

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
)

// stopTask cancels the task if its job cancels its tasks.
//
// A task on a robot keeps its state until the robot reports the end, because its process still runs.
// The wait is bounded, and skipped if the robot is out of contact: status.unconfirmedStop then shows that
// the process may still run. A lost attempt is stopped at the same time without waiting for it.
func (p *planner) stopTask() bool {
	if !p.isJobStopping() {
		return false
	}
	because := p.describeJob()
	if p.status.LostAttempt != 0 && p.state.HoldsResources() {
		p.discardLostAttempt(p.status.FindAttempt(p.status.LostAttempt))
	}
	switch {
	case p.isRetriedAfterBlock() && p.jobState() == lifecycle.JobFailed:
		p.restoreFailure(because)
	case p.state == lifecycle.TaskExited:
		p.sendSignal(lifecycle.TaskStopped, v1alpha1.ReasonCanceled, "%s", because)
	case !p.state.HoldsResources():
		p.sendSignal(lifecycle.TaskCancel, v1alpha1.ReasonCanceled, "%s", because)
	case !isOnline(p.Robot):
		p.sendSignal(lifecycle.TaskStopped, v1alpha1.ReasonCanceled, "%s; robot %s %s", because, p.lastRobot(), p.describeLoss())
	default:
		if p.awaitStop(v1alpha1.ReasonStopping, because) {
			p.sendSignal(lifecycle.TaskStopped, v1alpha1.ReasonCanceled, "%s; robot %s did not confirm the stop in time", because, p.lastRobot())
		}
	}
	return true
}

// evictTask stops a task that must leave its robot. The task keeps its state until the robot reports
// the end, so that no two attempts run. After the report or a bounded time it waits again.
func (p *planner) evictTask() bool {
	isRequested := p.status.Reason == v1alpha1.ReasonEvicting
	if p.state == lifecycle.TaskUnknown || p.EvictionReason == "" && !isRequested {
		return false
	}
	if p.isInterruption() {
		return p.followInterruption()
	}
	if p.isWindowClosed() && !p.isAsked() {
		return p.withdrawLateEviction()
	}
	if p.awaitStop(v1alpha1.ReasonEvicting, p.EvictionReason) {
		p.interruptTask("the robot did not confirm the stop in time")
	}
	if p.EvictionWaitsFor != "" && !p.isAsked() {
		p.requeueAtLimit(p.WindowClosesAt)
	}
	return true
}

// awaitStop requests the stop of the task from the robot, and reports whether the time for it is
// over. For a disconnected robot, which has not received the request, the time starts when it
// reconnects. A request that the robot could refuse is replaced.
func (p *planner) awaitStop(reason, because string) bool {
	online := p.robotPhase() == lifecycle.RobotOnline
	isAsked := meta.IsStatusConditionTrue(p.status.Conditions, ConditionStopping)
	switch {
	case p.status.Reason != reason || p.status.IsInterruption() || online && !isAsked:
		p.status.Interruption = nil
		p.requestStop(reason, because, online)
	case !online:
		if isAsked {
			p.setCondition(ConditionStopping, metav1.ConditionFalse, reason, "the robot is disconnected")
		}
	default:
		left := p.stopTime() - p.Stopping
		if left <= 0 {
			return true
		}
		p.requeueAt(p.now.Add(left))
	}
	return false
}

// requestStop requests the stop of the task from the robot, and starts the wait if the robot is
// online.
func (p *planner) requestStop(reason, because string, online bool) {
	if because == "" {
		because = p.status.Message // the robot has reconnected, and the request is repeated
	}
	p.status.Reason, p.status.Message = reason, because
	p.addReason("request a stop from the robot: " + because)
	if reason == v1alpha1.ReasonEvicting {
		p.actions.NormalEvent = because
	}
	// Otherwise the wait would be measured from an earlier stop and end at once.
	meta.RemoveStatusCondition(&p.status.Conditions, ConditionStopping)
	is := metav1.ConditionFalse
	if online {
		is = metav1.ConditionTrue
		p.requeueAt(p.now.Add(p.stopTime()))
	}
	p.setCondition(ConditionStopping, is, reason, because)
}

// stopTime returns how long a robot may take to stop the task and to report the end.
func (p *planner) stopTime() time.Duration { return p.killTimeout() + stopMargin }
