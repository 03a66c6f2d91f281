package taskgroup

import (
	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
)

// isSysbatch reports whether the group runs once on each matching robot.
func (w *Input) isSysbatch() bool { return w.Job != nil && w.Job.Spec.Type == v1alpha1.JobTypeSysbatch }

// isClosed reports whether the group runs on no further robot, because its sysbatch job has completed.
// The job counts what the group has written, so a robot may have joined just before.
func (w *Input) isClosed() bool {
	return w.isSysbatch() && lifecycle.JobState(w.Job.Status.State) == lifecycle.JobCompleted
}

// isLeftover reports whether a Task was created just when its sysbatch job completed, and does not
// start any more.
func (p *plan) isLeftover(m Member) bool { return p.isClosed() && isWaiting(m.State) }

// hasRunOnce reports whether a Task of a sysbatch job has ended. Only a requeue runs it again.
func (p *plan) hasRunOnce(m Member) bool {
	return p.isSysbatch() && (m.State == lifecycle.TaskCompleted || m.State == lifecycle.TaskFailed)
}

// keepsOpen reports whether the end of the group's Tasks does not end the group. A group of a
// sysbatch job ends after its job, which decides whether robots may still join.
func (p *plan) keepsOpen() bool { return p.isKeptRunning() || p.awaitsRobots() }

// awaitsRobots reports whether robots that join still run the sysbatch job, also if its group has failed.
func (p *plan) awaitsRobots() bool { return p.isSysbatch() && !p.jobState().IsTerminal() }
