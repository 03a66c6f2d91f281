package task

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/lifecycle"
)

// stop calls the Task off, because its job was.
//
// One that is on a robot keeps its state until the robot has ended it: a state
// that says canceled while the process runs would be a lie. The wait is
// bounded, and ends at once when the robot is lost.
//
// An original beside it is told to stop at once, not only when the other has
// ended. Of the two only the one that counts is waited for.
func (p *plan) stop() {
	because := p.jobBecause()
	if p.status.Original != 0 && p.state.OnRobot() {
		p.disown(p.status.Entry(p.status.Original))
	}
	switch {
	case p.excused() && p.jobState() == lifecycle.JobFailed:
		p.failAgain(because)
	case p.state == lifecycle.TaskExited:
		p.step(lifecycle.TaskStopped, v1alpha1.ReasonCanceled, "%s", because)
	case !p.state.OnRobot():
		p.step(lifecycle.TaskCancel, v1alpha1.ReasonCanceled, "%s", because)
	case p.robotLost():
		p.step(lifecycle.TaskStopped, v1alpha1.ReasonCanceled, "%s; %s", because, p.lostBecause())
	case p.stopIsOver(v1alpha1.ReasonStopping, because):
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
	case p.stopIsOver(v1alpha1.ReasonEvicting, p.Evict):
		p.giveBack("it did not confirm that it has stopped the task")
	}
	return true
}

// stopIsOver asks the robot to end the task, and tells whether it has had its
// time to. Only a robot that is in contact hears us: the time of one that is
// not begins when it is back, or its task would be given to another robot while
// it still runs there.
func (p *plan) stopIsOver(reason, because string) bool {
	online := p.robotPhase() == lifecycle.RobotOnline
	since := p.since(ConditionStopping)
	switch {
	case p.status.Reason != reason || online && since.IsZero():
		p.askToStop(reason, because, online)
	case !online:
		if !since.IsZero() {
			p.mark(ConditionStopping, metav1.ConditionFalse, reason, "the robot is out of contact")
		}
	default:
		end := since.Add(p.stopTime())
		if !p.now.Before(end) {
			return true
		}
		p.wake(end)
	}
	return false
}

// askToStop asks the robot to end the task, and begins to wait when it is in
// contact.
func (p *plan) askToStop(reason, because string, online bool) {
	if because == "" {
		because = "asked again"
	}
	p.status.Reason, p.status.Message = reason, reason+": "+because
	p.out.Why = append(p.out.Why, "ask the robot to stop: "+because)
	if reason == v1alpha1.ReasonEvicting {
		p.out.Note = because
	}
	// Or the wait would count from an earlier stop, and be over at once.
	meta.RemoveStatusCondition(&p.status.Conditions, ConditionStopping)
	is := metav1.ConditionFalse
	if online {
		is = metav1.ConditionTrue
		p.wake(p.now.Add(p.stopTime()))
	}
	p.mark(ConditionStopping, is, reason, because)
}

// stopTime is how long a robot has to end a task and say so.
func (p *plan) stopTime() time.Duration { return p.killTimeout() + margin }
