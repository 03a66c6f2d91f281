package task

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/taskcounts"
)

// ReasonRobotBlocked is the reason of a task whose failure does not count, because its group has
// blocked the robot that was at fault, or its init task is tried again.
const ReasonRobotBlocked = "RobotBlocked"

// requeueRequest returns the job's requeue that the task's group has yet to follow, or nil.
func (p *planner) requeueRequest() *v1alpha1.RequeueStatus {
	if p.Job == nil {
		return nil
	}
	return taskcounts.PendingRequeue(p.Job, p.Group)
}

// followRequeue puts the task back, if its job's requeue includes it.
func (p *planner) followRequeue() bool {
	r := p.requeueRequest()
	if r == nil || !taskcounts.ShouldRequeue(r, p.Task.Name, p.state) {
		return false
	}
	p.requeueTask(nil, v1alpha1.ReasonRequeued, p.describeJob())
	return true
}

// clearFailures clears the failure list of a task that its job's requeue leaves where it is.
func (p *planner) clearFailures() bool {
	r := p.requeueRequest()
	if r == nil || !taskcounts.ClearsFailures(r) || len(p.status.FailedRobots) == 0 {
		return false
	}
	p.status.FailedRobots = nil
	p.writeStatus()
	p.addReason("clear the failure list: " + p.describeJob())
	return true
}

// reviveTask puts a task that has ended back without a request of the user: because it is needed
// again, or because its failure no longer counts. It applies to all tasks that have ended.
func (p *planner) reviveTask() bool {
	failed := p.state == lifecycle.TaskFailed
	switch why := p.rerunReason(); {
	case !p.state.IsTerminal():
		return false
	case why != "" && failed:
		p.requeueTask(p.status.FailedRobots, ReasonRobotBlocked, why)
	case why != "":
		p.requeueTask(p.status.FailedRobots, ReasonRerunRequired, why)
	case failed && p.jobState().StartsTasks():
		p.retryAfterBlock()
	}
	return true
}

// requeueTask makes a task that has ended wait again. The robots still count as having failed it.
// Attempt numbers go on, so that late reports about old attempts are recognized, also about a lost
// attempt, which was stopped when the task ended.
func (p *planner) requeueTask(failed []string, reason, because string) {
	if !p.sendSignal(lifecycle.TaskRequeue, reason, "Task was requeued by Manager because %s", because) {
		return
	}
	p.status.FailedRobots = failed
	if p.status.LostAttempt != 0 {
		p.discardLostAttempt(p.status.FindAttempt(p.status.LostAttempt))
	}
	p.clearAttempt()
}

// clearAttempt clears the fields of the attempt that has ended, and lets the task wait for any
// robot.
func (p *planner) clearAttempt() {
	s := p.status
	s.StartedAt, s.FinishedAt, s.ExitCode, s.Signal, s.Resources = nil, nil, nil, 0, nil
	s.Restarts, s.RetryAt = nil, nil
	if meta.IsStatusConditionTrue(s.Conditions, ConditionStopping) {
		// Otherwise the next stop would count from this one, and be over at once.
		p.setCondition(ConditionStopping, metav1.ConditionFalse, p.status.Reason, p.status.Message)
	}
	if p.Task.Spec.TargetRobot != "" && p.canChangeRobot() {
		p.actions.Rebind = &RobotBinding{}
	}
}

// pauseTask pauses a waiting task if its job pauses.
func (p *planner) pauseTask() bool {
	if !p.state.IsPlaceable() || !p.jobState().PausesTasks() {
		return false
	}
	p.sendSignal(lifecycle.TaskPause, v1alpha1.ReasonPaused, "%s", p.describeJob())
	return true
}

// resumeTask lets a paused task wait again if its job goes on or is gone. It applies to all paused
// tasks.
func (p *planner) resumeTask() bool {
	if p.state != lifecycle.TaskPaused {
		return false
	}
	if p.Job == nil || p.jobState().StartsTasks() {
		p.sendSignal(lifecycle.TaskResume, v1alpha1.ReasonResumed, "%s", p.describeJob())
	}
	return true
}

// retryAfterBlock puts back a task that has failed on robots which its group has blocked since:
// they were at fault, not the task. They leave its failure list, so it comes back once, and is not
// given to them again.
func (p *planner) retryAfterBlock() {
	var left, blocked []string
	for _, robot := range p.status.FailedRobots {
		if p.isBlocked(robot) {
			blocked = append(blocked, robot)
		} else {
			left = append(left, robot)
		}
	}
	if len(blocked) == 0 {
		return
	}
	p.requeueTask(left, ReasonRobotBlocked, fmt.Sprintf("robot %s failed too many tasks of its group", blocked[0]))
}

// isRetriedAfterBlock reports whether the task waits for its first attempt after retryAfterBlock.
func (p *planner) isRetriedAfterBlock() bool {
	return p.state == lifecycle.TaskPending && p.status.Reason == ReasonRobotBlocked
}

// restoreFailure takes a retry back: the task is what it was when its job failed. If it was
// canceled instead, a requeue of what has failed would not find it.
func (p *planner) restoreFailure(because string) {
	// One that never ran had failed with its init task.
	if !p.sendSignal(lifecycle.TaskGiveUp, ReasonInitFailed, "%s; it had failed before", because) {
		return
	}
	if s, a := p.status, p.currentAttempt(); a != nil {
		s.Reason, s.StartedAt, s.FinishedAt, s.ExitCode, s.Signal = a.Reason, a.StartedAt, a.FinishedAt, a.ExitCode, a.Signal
	}
}

// describeJob returns the job's own reason, for the messages of its tasks.
func (p *planner) describeJob() string {
	if p.Job == nil {
		return "its job is gone"
	}
	s := p.Job.Status
	if s.StatusDescription == "" {
		return fmt.Sprintf("job %s is %s", p.Job.Name, s.State)
	}
	return fmt.Sprintf("job %s: %s", p.Job.Name, s.StatusDescription)
}

// softFailLimit returns the number of robots that must fail the task.
func (p *planner) softFailLimit() int {
	if p.Job != nil && p.Job.Spec.FailurePolicy != nil && p.Job.Spec.FailurePolicy.SoftFailLimit != nil {
		return int(*p.Job.Spec.FailurePolicy.SoftFailLimit)
	}
	return defaultSoftFailLimit
}

// defaultSoftFailLimit is the number of robots that must fail a task before it
// has failed (docs/reference/kinds/job.md).
const defaultSoftFailLimit = 3

// isBlocked reports whether the task's group has blocked the robot.
func (w *Input) isBlocked(robot string) bool { return isBlockedIn(w.Group, robot) }

func isBlockedIn(g *v1alpha1.TaskGroup, robot string) bool {
	return g != nil && slices.Contains(g.Status.BlockedRobots, robot)
}
