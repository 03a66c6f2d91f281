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
// A task on a robot keeps its state until the robot has ended it, because its process still runs.
// The wait is bounded, and ends at once if the robot is lost. A lost attempt is stopped at the same
// time, but not waited for.
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
	case p.isRobotLost():
		p.sendSignal(lifecycle.TaskStopped, v1alpha1.ReasonCanceled, "%s; %s", because, p.describeLoss())
	default:
		if p.awaitStop(v1alpha1.ReasonStopping, because) {
			p.sendSignal(lifecycle.TaskStopped, v1alpha1.ReasonCanceled, "%s; the robot did not confirm it in time", because)
		}
	}
	return true
}

// evictTask makes a task leave its robot, if it must. It keeps its state until the robot has ended
// it, so that no two attempts run, and waits again after the robot's report or a bounded time.
func (p *planner) evictTask() bool {
	isRequested := p.status.Reason == v1alpha1.ReasonEvicting
	if p.state == lifecycle.TaskUnknown || p.EvictionReason == "" && !isRequested {
		return false
	}
	if p.awaitStop(v1alpha1.ReasonEvicting, p.EvictionReason) {
		p.returnTask("it did not confirm that it has stopped the task")
	}
	return true
}

// awaitStop asks the robot to end the task, and reports whether its time for that is over. The time
// of an offline robot begins when it is back: it has not received the request, and the task may
// still run there.
func (p *planner) awaitStop(reason, because string) bool {
	online := p.robotPhase() == lifecycle.RobotOnline
	since := p.conditionSince(ConditionStopping)
	switch {
	case p.status.Reason != reason || online && since.IsZero():
		p.requestStop(reason, because, online)
	case !online:
		if !since.IsZero() {
			p.setCondition(ConditionStopping, metav1.ConditionFalse, reason, "the robot is disconnected")
		}
	default:
		end := since.Add(p.stopTime())
		if !p.now.Before(end) {
			return true
		}
		p.requeueAt(end)
	}
	return false
}

// requestStop asks the robot to end the task, and begins to wait when it is in
// contact.
func (p *planner) requestStop(reason, because string, online bool) {
	if because == "" {
		because = "asked again"
	}
	p.status.Reason, p.status.Message = reason, reason+": "+because
	p.actions.Reasons = append(p.actions.Reasons, "ask the robot to stop: "+because)
	if reason == v1alpha1.ReasonEvicting {
		p.actions.NormalEvent = because
	}
	// Or the wait would count from an earlier stop, and be over at once.
	meta.RemoveStatusCondition(&p.status.Conditions, ConditionStopping)
	is := metav1.ConditionFalse
	if online {
		is = metav1.ConditionTrue
		p.requeueAt(p.now.Add(p.stopTime()))
	}
	p.setCondition(ConditionStopping, is, reason, because)
}

// stopTime is how long a robot has to end a task and say so.
func (p *planner) stopTime() time.Duration { return p.killTimeout() + stopMargin }
