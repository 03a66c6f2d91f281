package task

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
)

// An interruption is an eviction that can wait: for a changed definition, or for a task of higher priority.
// While people at the robot hold the task, or the maintenance window is closed, it is not ordered, and an
// order that the robot has not followed is withdrawn. The robot may refuse the order by itself. No other
// attempt starts before the robot has reported the end of this one, however long that takes: an order that is
// not confirmed in time is withdrawn, too, and requested again later.

// mayRefuse reports whether the eviction can wait, and the agent of the robot knows that. Other agents stop
// what they are asked to.
func (w *Input) mayRefuse() bool {
	return w.EvictionWaitsFor != "" && w.Robot != nil && w.Robot.Status.RefusesInterruptions()
}

// mustLeave reports whether the task must leave its robot whatever people there have decided.
func (p *planner) mustLeave() bool {
	return p.EvictionReason != "" && !p.mayRefuse() && !p.isWindowClosed()
}

// isWindowClosed reports whether the eviction waits for the maintenance windows of the robot, and they are closed.
func (p *planner) isWindowClosed() bool {
	return p.EvictionWaitsFor != "" && !p.WindowClosesAt.IsZero() && !p.now.Before(p.WindowClosesAt)
}

// isAsked reports whether the robot was asked to stop the task for an eviction since it has been connected.
func (p *planner) isAsked() bool {
	return p.status.Reason == v1alpha1.ReasonEvicting && meta.IsStatusConditionTrue(p.status.Conditions, ConditionStopping)
}

// withdrawLateEviction withdraws an eviction of a robot whose agent cannot refuse it: the window has closed before the
// robot could be asked, and it would stop the task whenever it reconnects. It reports whether there was an order.
func (p *planner) withdrawLateEviction() bool {
	obstacle := "the maintenance window of robot " + p.lastRobot() + " is closed"
	if p.status.Reason != v1alpha1.ReasonEvicting {
		p.postponeEviction(obstacle)
		return false
	}
	if i := p.status.Interruption; i == nil || i.Attempt != p.status.Attempt {
		p.status.Interruption = &v1alpha1.TaskInterruption{Attempt: p.status.Attempt}
	}
	p.withdrawOrder(obstacle)
	return true
}

// isInterruption reports whether the eviction is an interruption. One that always acts never becomes one.
func (p *planner) isInterruption() bool {
	if p.status.Reason != v1alpha1.ReasonEvicting {
		return p.mayRefuse()
	}
	return p.status.IsInterruption() && !p.mustLeave() && p.Robot != nil && p.Robot.Status.RefusesInterruptions()
}

// followInterruption orders an interruption, awaits the robot, or withdraws the order. It reports whether an order
// is in force, or was until now.
func (p *planner) followInterruption() bool {
	isOrdered, obstacle := p.status.IsInterruption(), p.interruptionObstacle()
	switch {
	case obstacle != "" && isOrdered:
		p.withdrawOrder(obstacle)
	case obstacle != "":
		p.postponeEviction(obstacle)
		return false
	case !isOrdered:
		p.orderInterruption()
	default:
		p.awaitInterruption()
	}
	return true
}

// interruptionObstacle returns why the task must not be interrupted now. Empty if it may.
func (p *planner) interruptionObstacle() string {
	hold, until := p.Robot.Status.FindHold(string(p.Task.UID)), p.interruptionLimit()
	switch {
	case hold != nil:
		return p.describeHold(hold)
	case p.status.IsInterruption() && p.status.Interruption.Refusal != "":
		return fmt.Sprintf("robot %s refuses to interrupt it (%s)", p.Robot.Name, p.status.Interruption.Refusal)
	case !until.IsZero() && !p.now.Before(until):
		return "the maintenance window of robot " + p.Robot.Name + " is closed"
	case p.isUnconfirmed():
		return "robot " + p.Robot.Name + " did not confirm the stop in time"
	case p.now.Before(p.status.NextInterruption()):
		p.requeueAt(p.status.NextInterruption())
		return "an eviction was withdrawn a moment ago"
	}
	return ""
}

// isUnconfirmed reports whether the time is over that a connected robot has for the stop that was ordered.
func (p *planner) isUnconfirmed() bool {
	isAsked := meta.IsStatusConditionTrue(p.status.Conditions, ConditionStopping)
	return p.status.IsInterruption() && isAsked && p.robotPhase() == lifecycle.RobotOnline && p.Stopping >= p.stopTime()
}

// interruptionLimit returns when the maintenance window closes. If zero, no window limits the interruption.
// An order keeps its limit after the reason for the eviction is gone.
func (p *planner) interruptionLimit() time.Time {
	i := p.status.Interruption
	switch {
	case p.EvictionReason != "":
		return p.WindowClosesAt
	case i != nil && i.Until != nil:
		return i.Until.Time
	}
	return time.Time{}
}

// describeHold returns which hold keeps a task running. Readers of the task may not be able to read a robot of another
// namespace, and its holds name people.
func (p *planner) describeHold(h *v1alpha1.RobotHold) string {
	robot := p.Robot.Name
	if p.Robot.Namespace != p.Task.Namespace {
		return "it is held at robot " + robot
	}
	if h.TaskUID == "" {
		return fmt.Sprintf("robot %s is held by %s: %s", robot, h.By, h.Reason)
	}
	return fmt.Sprintf("it is held at robot %s by %s: %s", robot, h.By, h.Reason)
}

// orderInterruption requests the stop of the task from the robot, which may refuse it.
func (p *planner) orderInterruption() {
	p.status.Interruption = &v1alpha1.TaskInterruption{
		Attempt: p.status.Attempt, PriorReason: p.status.Reason, PriorMessage: p.status.Message,
	}
	p.limitInterruption()
	p.requestStop(v1alpha1.ReasonEvicting, p.EvictionReason, p.robotPhase() == lifecycle.RobotOnline)
}

// limitInterruption records when the maintenance window closes, and plans again then.
func (p *planner) limitInterruption() {
	until := p.interruptionLimit()
	if was := p.status.Interruption.Until; until.IsZero() && was == nil || was != nil && was.Time.Equal(until.Truncate(time.Microsecond)) {
		p.requeueAtLimit(until)
		return
	}
	p.status.Interruption.Until = nil
	if !until.IsZero() {
		at := metav1.NewMicroTime(until.Truncate(time.Microsecond))
		p.status.Interruption.Until = &at
	}
	p.writeStatus()
	p.requeueAtLimit(until)
}

func (p *planner) requeueAtLimit(until time.Time) {
	if !until.IsZero() {
		p.requeueAt(until)
	}
}

// awaitInterruption waits for the robot. For a disconnected one, the time starts when it reconnects.
func (p *planner) awaitInterruption() {
	online := p.robotPhase() == lifecycle.RobotOnline
	isAsked := meta.IsStatusConditionTrue(p.status.Conditions, ConditionStopping)
	switch {
	case online && !isAsked:
		p.requestStop(v1alpha1.ReasonEvicting, p.EvictionReason, online)
	case !online && isAsked:
		p.setCondition(ConditionStopping, metav1.ConditionFalse, v1alpha1.ReasonEvicting, "the robot is disconnected")
	case online:
		p.requeueAt(p.now.Add(p.stopTime() - p.Stopping))
	}
	p.limitInterruption()
}

// withdrawOrder lets the task run on. If the robot stops it nevertheless, the end counts as that of an
// eviction.
func (p *planner) withdrawOrder(obstacle string) {
	i := p.status.Interruption
	p.status.Reason, p.status.Message = i.PriorReason, i.PriorMessage
	p.markWithdrawn(i, obstacle)
	p.setCondition(ConditionStopping, metav1.ConditionFalse, v1alpha1.ReasonInterruptionWithdrawn, obstacle)
	p.actions.NormalEvent, p.actions.NormalReason = "Eviction withdrawn: "+obstacle, v1alpha1.ReasonInterruptionWithdrawn
}

// postponeEviction removes a requested eviction that must not be ordered now. The requester asks again.
func (p *planner) postponeEviction(obstacle string) {
	if !p.isEvictionRequested() {
		return // by the scheduler, whose reason is not stored
	}
	if p.now.Before(p.status.NextInterruption()) {
		p.actions.WithdrawEviction = true
		return
	}
	i := &v1alpha1.TaskInterruption{Attempt: p.status.Attempt}
	p.status.Interruption = i
	p.markWithdrawn(i, obstacle)
}

// markWithdrawn records that an eviction was withdrawn, so that the next one is not requested at once.
func (p *planner) markWithdrawn(i *v1alpha1.TaskInterruption, obstacle string) {
	at := metav1.NewMicroTime(p.now)
	i.WithdrawnAt = &at
	p.actions.WithdrawEviction = p.isEvictionRequested()
	p.addReason("withdraw the eviction: " + obstacle)
	p.writeStatus()
}

// isEvictionRequested reports whether the spec requests the eviction of the current attempt.
func (w *Input) isEvictionRequested() bool {
	return w.Task.Spec.EvictAttempt > 0 && w.Task.Spec.EvictAttempt == w.Task.Status.Attempt
}
