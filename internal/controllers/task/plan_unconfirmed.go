package task

import (
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/placement/apiconv"
	"k8s4r.io/k8s4r/internal/core/taskstate"
)

// mayHaveUnconfirmedStop reports whether an attempt may be running although it should not: the task has
// ended, is being stopped, or did so before it was requeued.
func (w *Input) mayHaveUnconfirmedStop(state lifecycle.TaskState) bool {
	return state.IsTerminal() || w.jobState().CancelsTasks() || w.Task.Status.UnconfirmedStop != nil
}

// updateUnconfirmedStop records which attempt may still be running although the task has ended or is being
// stopped, until the server has written the end of the attempt. It decides after all steps, because
// several of them end tasks.
func (p *planner) updateUnconfirmedStop() {
	if !p.mayHaveUnconfirmedStop(p.state) {
		return
	}
	was := p.Task.Status.UnconfirmedStop
	var is *v1alpha1.UnconfirmedStop
	if a := p.firstUnconfirmedAttempt(); a != nil {
		is = &v1alpha1.UnconfirmedStop{Robot: a.Robot, Attempt: a.Attempt, Since: metav1.NewMicroTime(p.now)}
		if was != nil {
			is.Since = was.Since
		}
	}
	if equality.Semantic.DeepEqual(was, is) {
		return
	}
	p.status.UnconfirmedStop = is
	p.writeStatus()
	if is == nil {
		p.addReason("no longer await that the stop is confirmed by robot " + was.Robot)
	} else {
		p.addReason("await that the stop is confirmed by robot " + is.Robot)
	}
}

// firstUnconfirmedAttempt returns the oldest attempt that was ended without its robot, or nil.
func (p *planner) firstUnconfirmedAttempt() *v1alpha1.TaskAttempt {
	next := *p.Task
	next.Status = *p.status
	for _, a := range taskstate.OtherOpenAttempts(&next) {
		if !taskstate.CanBeRestored(&next, a) && p.canConfirm(a) {
			return a
		}
	}
	return nil
}

// canConfirm reports whether the end of an attempt will be reported once its robot is in contact.
// Otherwise the stop would stay unconfirmed forever. Nothing is reported for a robot without an object,
// nor for an earlier attempt on a legacy agent, which cannot be asked about it.
func (p *planner) canConfirm(a *v1alpha1.TaskAttempt) bool {
	for _, open := range p.OpenAttempts {
		if open.Attempt == a.Attempt {
			isLast := p.state.IsTerminal() && a.Attempt == p.status.Attempt
			return open.Robot != nil && (isLast || !apiconv.HasLegacyAgent(open.Robot))
		}
	}
	return false
}
