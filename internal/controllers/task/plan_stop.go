package task

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/lifecycle"
)

// stop calls the Task off, because its job was.
//
// One that is on a robot keeps its state until the robot has ended it: a state
// that says canceled while the process runs would be a lie. The wait is
// bounded, and ends at once when the robot is lost.
func (p *plan) stop() {
	because := p.jobBecause()
	switch {
	case p.state == lifecycle.TaskExited:
		p.step(lifecycle.TaskStopped, v1alpha1.ReasonCanceled, "%s", because)
	case !p.state.OnRobot():
		p.step(lifecycle.TaskCancel, v1alpha1.ReasonCanceled, "%s", because)
	case p.robotLost():
		p.step(lifecycle.TaskStopped, v1alpha1.ReasonCanceled, "%s; %s", because, p.lostBecause())
	case p.status.Reason != v1alpha1.ReasonStopping:
		p.askToStop(because)
	default:
		p.awaitStop(because)
	}
}

func (p *plan) askToStop(because string) {
	p.status.Reason, p.status.Message = v1alpha1.ReasonStopping, "Stopping: "+because
	p.out.Why = append(p.out.Why, "ask the robot to stop: "+because)
	p.mark(ConditionStopping, metav1.ConditionTrue, v1alpha1.ReasonStopping, because)
	p.out.Status = p.status
	p.wake(p.now.Add(p.stopTime()))
}

func (p *plan) awaitStop(because string) {
	end := p.since(ConditionStopping).Add(p.stopTime())
	if p.now.Before(end) {
		p.wake(end)
		return
	}
	p.step(lifecycle.TaskStopped, v1alpha1.ReasonCanceled, "%s; the robot did not confirm it in time", because)
}

// stopTime is how long a robot has to end a task and say so.
func (p *plan) stopTime() time.Duration { return p.killTimeout() + margin }
