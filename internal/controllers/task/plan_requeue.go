package task

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/taskcounts"
	"k8s4r.io/k8s4r/internal/core/taskstate"
)

// ReasonRobotBlocked is the reason of a Task whose failure no longer counts, because its group has
// blocked the robot on which it failed, or because its init task is retried for that reason.
const ReasonRobotBlocked = "RobotBlocked"

// requeueRequest returns the job's requeue that the task's group has yet to follow, or nil.
func (p *planner) requeueRequest() *v1alpha1.RequeueStatus {
	if p.Job == nil {
		return nil
	}
	return taskcounts.PendingRequeue(p.Job, p.Group)
}

// followRequeue returns the task to pending if the requeue of its job includes it.
func (p *planner) followRequeue() bool {
	r := p.requeueRequest()
	if r == nil || !taskcounts.ShouldRequeue(r, p.Task.Name, p.requeueState()) {
		return false
	}
	if p.isReplacedByRange(r) {
		return true
	}
	p.requeueTask(nil, v1alpha1.ReasonRequeued, p.describeJob())
	p.forgetEnds(r)
	return true
}

// clearFailures clears the failure list of a task that the requeue of its job does not include.
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

// handleEndedTask returns a task that has ended to pending if it is needed again or its failure no
// longer counts. It applies to all tasks that have ended.
func (p *planner) handleEndedTask() bool {
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

// requeueTask returns a task to pending. It keeps failed as the robots on which it failed. Attempt
// numbers continue, so that late reports about older attempts are recognized.
func (p *planner) requeueTask(failed []string, reason, because string) {
	if !p.sendSignal(lifecycle.TaskRequeue, reason, "Requeued: %s", because) {
		return
	}
	p.status.FailedRobots = failed
	if p.status.LostAttempt != 0 {
		p.discardLostAttempt(p.status.FindAttempt(p.status.LostAttempt))
	}
	p.clearAttempt()
}

// clearAttempt clears the fields of the attempt that has ended, and lets the task wait for any robot
// that it may use.
func (p *planner) clearAttempt() {
	s := p.status
	s.StartedAt, s.FinishedAt, s.ExitCode, s.Signal, s.Resources = nil, nil, nil, 0, nil
	s.Restarts, s.RetryAt, s.PauseAttempt, s.Interruption = nil, nil, 0, nil
	p.forgetAcceptance()
	if meta.IsStatusConditionTrue(s.Conditions, ConditionStopping) {
		// Otherwise the next stop would be measured from this one and end at once.
		p.setCondition(ConditionStopping, metav1.ConditionFalse, p.status.Reason, p.status.Message)
	}
	if p.Task.Spec.TargetRobot != "" && p.canChangeRobot() {
		p.actions.Rebind = &RobotBinding{}
	}
}

// pauseTask pauses a waiting task if its job is paused.
func (p *planner) pauseTask() bool {
	if !p.state.IsPlaceable() || !p.jobState().PausesTasks() {
		return false
	}
	p.sendSignal(lifecycle.TaskPause, v1alpha1.ReasonPaused, "%s", p.describeJob())
	return true
}

// resumeTask returns a paused task to pending if its job was resumed or deleted. It applies to all
// paused tasks.
func (p *planner) resumeTask() bool {
	if p.state != lifecycle.TaskPaused {
		return false
	}
	if p.Job == nil || p.jobState().StartsTasks() {
		p.sendSignal(lifecycle.TaskResume, v1alpha1.ReasonResumed, "%s", p.describeJob())
	}
	return true
}

// retryAfterBlock returns a failed task to pending if its group has since blocked a robot on which it
// failed: the robot was at fault, not the task. Blocked robots leave its failure list, so this
// happens once for each.
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
	p.requeueTask(left, ReasonRobotBlocked, fmt.Sprintf("too many tasks of its group failed on robot %s", blocked[0]))
}

// isRetriedAfterBlock reports whether the task waits for its first attempt after retryAfterBlock.
func (p *planner) isRetriedAfterBlock() bool {
	return p.state == lifecycle.TaskPending && p.status.Reason == ReasonRobotBlocked
}

// restoreFailure reverts retryAfterBlock: the task is failed, as it was when its job failed. If it
// was canceled instead, a requeue of failed tasks would not include it.
func (p *planner) restoreFailure(because string) {
	// The reason holds for a task that never ran; otherwise it is replaced below.
	if !p.sendSignal(lifecycle.TaskGiveUp, ReasonInitFailed, "%s; the task had already failed", because) {
		return
	}
	if s, a := p.status, p.currentAttempt(); a != nil {
		s.Reason, s.StartedAt, s.FinishedAt, s.ExitCode, s.Signal = a.Reason, taskstate.LastRunStart(a), a.FinishedAt, a.ExitCode, a.Signal
	}
}

// describeJob returns the state of the job and its reason, for the messages of its tasks.
func (p *planner) describeJob() string {
	if p.Job == nil {
		return "its job no longer exists"
	}
	s := p.Job.Status
	if s.StatusDescription == "" {
		return fmt.Sprintf("job %s is %s", p.Job.Name, s.State)
	}
	return fmt.Sprintf("job %s: %s", p.Job.Name, s.StatusDescription)
}

// describePause returns the message of a task that stops retrying because its job is paused.
func (p *planner) describePause() string { return "its job is in state " + string(p.jobState()) }

// softFailLimit returns the number of robots on which the task may fail before it has failed.
func (p *planner) softFailLimit() int {
	if p.Job != nil && p.Job.Spec.FailurePolicy != nil && p.Job.Spec.FailurePolicy.SoftFailLimit != nil {
		return int(*p.Job.Spec.FailurePolicy.SoftFailLimit)
	}
	return defaultSoftFailLimit
}

// defaultSoftFailLimit is the default of failurePolicy.softFailLimit (docs/reference/kinds/job.md).
const defaultSoftFailLimit = 3

// isBlocked reports whether the task's group has blocked the robot.
func (w *Input) isBlocked(robot string) bool { return isBlockedIn(w.Group, robot) }

func isBlockedIn(g *v1alpha1.TaskGroup, robot string) bool {
	return g != nil && slices.Contains(g.Status.BlockedRobots, robot)
}
