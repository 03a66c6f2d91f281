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
		p.askToStop(v1alpha1.ReasonStopping, because)
	case p.stopIsOver():
		p.step(lifecycle.TaskStopped, v1alpha1.ReasonCanceled, "%s; the robot did not confirm it in time", because)
	}
}

// evicted makes a task leave its robot, and tells whether it does. It keeps its
// state until the robot has ended it, for two of them would run otherwise, and
// goes back to pending with the robot's word, or after a bounded wait.
func (p *plan) evicted() bool {
	asked := p.status.Reason == v1alpha1.ReasonEvicting
	switch {
	case p.state == lifecycle.TaskUnknown || p.Evict == "" && !asked:
		return false
	case !asked:
		p.askToStop(v1alpha1.ReasonEvicting, p.Evict)
	case p.stopIsOver():
		p.giveBack("it did not confirm that it has stopped the task")
	}
	return true
}

// askToStop asks the robot to end the task, and begins to wait.
func (p *plan) askToStop(reason, because string) {
	p.status.Reason, p.status.Message = reason, reason+": "+because
	p.out.Why = append(p.out.Why, "ask the robot to stop: "+because)
	p.mark(ConditionStopping, metav1.ConditionTrue, reason, because)
	p.out.Status = p.status
	p.wake(p.now.Add(p.stopTime()))
}

// stopIsOver tells whether the robot has had its time, and else wakes us when
// it will have.
func (p *plan) stopIsOver() bool {
	end := p.since(ConditionStopping).Add(p.stopTime())
	if p.now.Before(end) {
		p.wake(end)
		return false
	}
	return true
}

// stopTime is how long a robot has to end a task and say so.
func (p *plan) stopTime() time.Duration { return p.killTimeout() + margin }
