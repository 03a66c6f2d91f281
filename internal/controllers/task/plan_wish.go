package task

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/progress"
	"k8s4r.io/k8s4r/internal/lifecycle"
)

// ReasonExcused is that of a task whose failure does not count, because its group
// has blocked the robot that was at fault, or its init task is tried again.
const ReasonExcused = "Excused"

// jobState of the Task's Job. Empty: it has none, or it is gone.
func (w *World) jobState() lifecycle.JobState {
	if w.Job == nil {
		return ""
	}
	return lifecycle.JobState(w.Job.Status.State)
}

// requeueing is the job's wish that the task is to follow now. Nil: none.
func (p *plan) requeueing() *v1alpha1.RequeueStatus {
	if p.Job == nil {
		return nil
	}
	return progress.Requeueing(p.Job, p.Group)
}

// requeued tells whether the job's requeue puts this task back.
func (p *plan) requeued() bool {
	r := p.requeueing()
	return r != nil && progress.PutsBack(r, p.Task.Name, p.state)
}

// forgiven tells whether the job's requeue leaves the task where it is and
// clears its failure list.
func (p *plan) forgiven() bool {
	r := p.requeueing()
	return r != nil && progress.Forgives(r) && len(p.status.FailedRobots) > 0
}

func (p *plan) forgive() {
	p.status.FailedRobots, p.out.Status = nil, p.status
	p.out.Why = append(p.out.Why, "clear the failure list: "+p.jobBecause())
}

// putBack lets a task that has ended begin anew, with the robots that still count
// as having failed it. Its attempts go on counting, for their numbers fence off what
// may still be said of the old ones: also of an original, which was told to stop
// when the task ended.
func (p *plan) putBack(failed []string, reason, because string) {
	if !p.step(lifecycle.TaskRequeue, reason, "Task was requeued by Manager because %s", because) {
		return
	}
	p.status.FailedRobots = failed
	if p.status.Original != 0 {
		p.disown(p.status.Entry(p.status.Original))
	}
	p.begin()
}

// begin forgets the attempt that has ended, and lets the task wait for any
// robot.
func (p *plan) begin() {
	s := p.status
	s.StartedAt, s.FinishedAt, s.ExitCode, s.Signal, s.Resources = nil, nil, nil, 0, nil
	s.Restarts, s.RetryAt = nil, nil
	if meta.IsStatusConditionTrue(s.Conditions, ConditionStopping) {
		// Or the next stop would count from this one, and be over at once.
		p.mark(ConditionStopping, metav1.ConditionFalse, p.status.Reason, p.status.Message)
	}
	if p.Task.Spec.TargetRobot != "" && p.byUs() {
		p.out.Rebind = &Placing{}
	}
}

// hold keeps back a task that waits while its job pauses.
func (p *plan) hold() { p.step(lifecycle.TaskPause, v1alpha1.ReasonPaused, "%s", p.jobBecause()) }

// resume lets a task wait again whose job goes on.
func (p *plan) resume() { p.step(lifecycle.TaskResume, v1alpha1.ReasonResumed, "%s", p.jobBecause()) }

// unblock puts back a task that has failed for good on robots which its group
// has blocked since: they were at fault, not the task. The blocked robots leave
// its failure list, so it comes back once, and is not given to them again.
func (p *plan) unblock() {
	var left, blocked []string
	for _, robot := range p.status.FailedRobots {
		if p.blocked(robot) {
			blocked = append(blocked, robot)
		} else {
			left = append(left, robot)
		}
	}
	if len(blocked) == 0 {
		return
	}
	p.putBack(left, ReasonExcused, fmt.Sprintf("robot %s failed too many tasks of its group", blocked[0]))
}

// excused tells whether the task waits for its first attempt since it was put back
// by unblock.
func (p *plan) excused() bool {
	return p.state == lifecycle.TaskPending && p.status.Reason == ReasonExcused
}

// failAgain takes the excuse back: the task is what it was when its job failed. One
// that was canceled instead was not found by a requeue of what has failed, which
// then ran nothing.
func (p *plan) failAgain(because string) {
	// One that never ran had failed with its init task.
	if !p.step(lifecycle.TaskGiveUp, ReasonInitFailed, "%s; it had failed before", because) {
		return
	}
	if s, a := p.status, p.present(); a != nil {
		s.Reason, s.StartedAt, s.FinishedAt, s.ExitCode, s.Signal = a.Reason, a.StartedAt, a.FinishedAt, a.ExitCode, a.Signal
	}
}

// jobBecause carries the job's own reason to each of its tasks.
func (p *plan) jobBecause() string {
	if p.Job == nil {
		return "its job is gone"
	}
	s := p.Job.Status
	if s.StatusDescription == "" {
		return fmt.Sprintf("job %s is %s", p.Job.Name, s.State)
	}
	return fmt.Sprintf("job %s: %s", p.Job.Name, s.StatusDescription)
}

// softFailLimit is the number of robots that must fail the task.
func (p *plan) softFailLimit() int {
	if p.Job != nil && p.Job.Spec.FailurePolicy != nil && p.Job.Spec.FailurePolicy.SoftFailLimit != nil {
		return int(*p.Job.Spec.FailurePolicy.SoftFailLimit)
	}
	return defaultSoftFailLimit
}

// defaultSoftFailLimit is the number of robots that must fail a task before it
// has failed (docs/spec/job.md).
const defaultSoftFailLimit = 3

// blocked tells whether the task's group leaves the robot alone.
func (w *World) blocked(robot string) bool { return blockedIn(w.Group, robot) }

func blockedIn(g *v1alpha1.TaskGroup, robot string) bool {
	return g != nil && slices.Contains(g.Status.BlockedRobots, robot)
}
