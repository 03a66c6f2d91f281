package task

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/lifecycle"
	"k8s4r.io/k8s4r/internal/wire"
)

// follow watches over a Task that is on a robot.
func (p *plan) follow() {
	if at := p.lastRobot(); at != p.Task.Spec.TargetRobot {
		// A crash between the two writes of reinstate left the old name there.
		p.out.Rebind = &Placing{TargetRobot: at, ByUs: true}
	}
	if p.lost() || p.evicted() {
		return
	}
	end, bounded := p.backstop()
	switch {
	case !bounded || p.robotPhase() != lifecycle.RobotOnline || p.state == lifecycle.TaskUnknown:
	case p.now.Before(end):
		p.wake(end)
	default:
		p.timeOut()
	}
}

// backstop is when a robot that is in contact must have ended the attempt.
//
// The robot's clock says when the attempt started; one that is behind must not
// make us end an attempt early, so it counts from the dispatch at the least.
func (p *plan) backstop() (time.Time, bool) {
	timeout := p.Task.Spec.Timeout.Value()
	if timeout == 0 || p.status.StartedAt == nil {
		return time.Time{}, false
	}
	start := p.status.StartedAt.Time
	if at := p.since(v1alpha1.ConditionPlaced); at.After(start) {
		start = at
	}
	if at := p.status.LastRestartTime; at != nil && at.After(start) {
		start = at.Time
	}
	return start.Add(timeout + p.killTimeout() + margin), true
}

// timeOut ends the attempt in the robot's stead. Whether its process has ended
// nobody knows, so its entry stays open: closed, it let the next attempt start
// elsewhere beside it, though two of them never may.
func (p *plan) timeOut() {
	if !p.step(lifecycle.TaskTimedOut, wire.ReasonTimeout, "Task terminated: Task timeout") {
		return
	}
	at := metav1.NewMicroTime(p.now)
	p.status.FinishedAt = &at
	if a := p.present(); a != nil {
		a.State, a.Reason = string(lifecycle.TaskFailed), wire.ReasonTimeout
	}
}

// since is when a condition became true, or zero.
func (p *plan) since(kind string) time.Time {
	for _, c := range p.status.Conditions {
		if c.Type == kind && c.Status == metav1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

// giveBack lets a Task whose attempt ended through no fault of its own wait for
// a robot again.
func (p *plan) giveBack(because string) {
	robot := p.lastRobot()
	if !p.step(lifecycle.TaskReturn, ReasonReturned, "Returned by %s: %s", robot, because) {
		return
	}
	p.out.Note = p.status.Message
	p.begin()
	p.mark(v1alpha1.ConditionPlaced, metav1.ConditionFalse, ReasonReturned, p.status.Message)
}
