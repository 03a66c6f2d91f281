package task

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/restart"
	"k8s4r.io/k8s4r/internal/core/taskstate"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// Reasons of Tasks whose attempt has failed.
const (
	// ReasonNoCapableRobot is the reason of a Task that failed because no further robot could run it.
	ReasonNoCapableRobot = "NoCapableRobot"
	// ReasonRescheduled is the reason of a Task that waits for an attempt on another robot.
	ReasonRescheduled = "Rescheduled"
)

// handleExit decides what follows an attempt that has exited (docs/reference/kinds/task.md, Failure).
func (p *planner) handleExit() bool {
	if p.state != lifecycle.TaskExited {
		return false
	}
	reason := p.status.Reason
	if a := p.currentAttempt(); a != nil && a.Reason != "" {
		reason = a.Reason
	}
	if p.status.LostAttempt != 0 {
		p.pauseRuns() // of the lost attempt, for which the task waits
	}
	switch {
	case reason == wire.ReasonPolicyViolation:
		p.leaveRefusingRobot()
	case reason == wire.ReasonPaused:
		p.interruptTask(cmp.Or(p.runObstacle(), reason))
	case wire.IsWithoutFault(reason):
		p.interruptTask(reason)
	case p.outdatedReason() != "":
		// The robot may not suit the new definition, which has not failed.
		p.interruptTask(p.outdatedReason())
	case p.isRobotLost() && p.isTiedToRobot():
		p.awaitOwnRobot()
	default:
		// While the task waits for its lost attempt, it is not restarted, even if a new interval of
		// its restartPolicy begins.
		awaitsLostAttempt := p.isUnplacedFor(taskstate.ReasonAwaitingLostAttempt)
		if awaitsLostAttempt || !p.restartTask() {
			p.failAttempt(reason)
		}
	}
	return true
}

// restartTask restarts the task on its robot if its restartPolicy allows it. It reports whether the
// task needs no other decision: it is restarted now or later, or waits for a robot again.
func (p *planner) restartTask() bool {
	policy := restartPolicy(&p.Task.Spec)
	next := policy.Next(p.countRestarts(), p.now, true)
	if next.IsExhausted || p.hasRobotRestarted() || p.isRobotLost() && (p.Robot == nil || p.HasCapableRobot) {
		return false
	}
	why := p.restartObstacle()
	switch {
	case why != "":
		p.interruptTask(why)
	case next.WaitsForInterval:
		p.scheduleRetry(next.At, "restartPolicy allows no more restarts in this interval")
	case p.status.RetryAt == nil:
		p.scheduleRetry(next.At, p.describeEnd())
	default:
		p.restartWhenDue(policy, next.Count)
	}
	return true
}

// hasRobotRestarted reports whether the agent has restarted the task itself until its restartPolicy
// allowed no more. It had no part in the end of an attempt that the manager timed out. A restart that is
// scheduled after that goes ahead, also if the agent reports the end meanwhile.
func (p *planner) hasRobotRestarted() bool {
	a := p.currentAttempt()
	return a != nil && a.RunCount > 0 && !isTimedOut(a) && p.status.RetryAt == nil
}

// restartWhenDue restarts the task when its delay is over and its robot is online. Count includes this
// restart.
func (p *planner) restartWhenDue(policy restart.Policy, count restart.Count) {
	if at := p.status.RetryAt; at != nil && p.now.Before(at.Time) {
		p.requeueAt(at.Time)
		return
	}
	if p.robotPhase() != lifecycle.RobotOnline {
		return // the change of its phase triggers another plan
	}
	if p.awaitAttemptEnd() {
		return // an attempt that timed out may still be running there
	}
	robot, of := p.lastRobot(), ""
	if !policy.IsEndless() {
		of = fmt.Sprintf(" of %d", policy.Attempts)
	}
	if p.sendSignal(lifecycle.TaskRestart, "", "Dispatching to %s again (restart %d%s)", robot, count.Restarts, of) {
		p.openAttempt(robot)
		p.status.Restarts = &v1alpha1.Restarts{Robot: robot, Count: count.Restarts, Since: metav1.NewMicroTime(count.Since)}
		p.setPlaced(robot)
	}
}

// describeEnd returns how the attempt ended, for a message. Services may end without failing.
func (p *planner) describeEnd() string {
	if code := p.status.ExitCode; code != nil && *code == 0 {
		return "the attempt ended"
	}
	return "the attempt failed"
}

// restartObstacle returns why a task that has restarts left waits for a robot again instead. Empty if
// it may restart. A task must not fail because of a pause or a drain, or because its robot is no
// longer shared.
func (p *planner) restartObstacle() string {
	switch {
	case p.EvictionReason != "":
		return p.EvictionReason
	case p.jobState().PausesTasks():
		return p.describePause()
	}
	return p.sharingObstacle()
}

// sharingObstacle returns that the robot is no longer shared with the task's namespace. Empty if it is.
func (w *Input) sharingObstacle() string {
	if w.Robot == nil || w.Robot.ServesNamespace(w.Task.Namespace) {
		return ""
	}
	return "the robot is no longer shared with namespace " + w.Task.Namespace
}

// countRestarts returns the manager's restarts on the current robot.
func (p *planner) countRestarts() restart.Count {
	r := p.status.Restarts
	if r == nil || r.Robot != p.lastRobot() {
		return restart.Count{}
	}
	return restart.Count{Restarts: r.Count, Since: r.Since.Time}
}

// scheduleRetry sets the time of the next restart. It writes the status only if that time is later
// than the one set before.
func (p *planner) scheduleRetry(at time.Time, because string) {
	if have := p.status.RetryAt; have == nil || have.Time.Before(at.Truncate(time.Microsecond)) {
		t := metav1.NewMicroTime(at)
		p.status.RetryAt = &t
		p.status.Message = fmt.Sprintf("Restarting in %s: %s", at.Sub(p.now).Round(time.Second), because)
		p.writeStatus()
	}
	p.requeueAt(p.status.RetryAt.Time)
}

// failAttempt adds the robot to the task's failure list and decides whether another robot is tried.
// The task keeps the robot's report as its message; the condition Placed explains the decision.
func (p *planner) failAttempt(reason string) {
	if p.isTiedToRobot() {
		p.failTask(reason, "restartPolicy allows no further restart, and the task cannot move to another robot")
		return
	}
	s := p.status
	s.FailedRobots = p.failedRobots()
	delay, more := p.nextReschedule()
	switch limit, faults := p.softFailLimit(), p.countFaults(); {
	case faults >= limit:
		p.failTask(reason, fmt.Sprintf("it failed on %d robots, and softFailLimit is %d", faults, limit))
	case !more:
		p.failTask(reason, "reschedulePolicy allows no further attempt")
	case !p.HasCapableRobot:
		p.failTask(ReasonNoCapableRobot, "no other robot can run it")
	default:
		p.rescheduleTask(delay)
	}
}

// leaveRefusingRobot lets another robot run a task that the policy of its robot does not allow. That is
// no failure of the task, so no limit of failures counts it. A task that is tied to its robot waits for
// another policy.
func (p *planner) leaveRefusingRobot() {
	if !p.isTiedToRobot() {
		p.status.FailedRobots = p.failedRobots()
	}
	p.interruptTask(p.failureMessage())
}

// countFaults counts the robots on which the task failed, without those that refused it.
func (p *planner) countFaults() (n int) {
	for _, robot := range p.status.FailedRobots {
		refused := slices.ContainsFunc(p.status.Attempts, func(a v1alpha1.TaskAttempt) bool {
			return a.Robot == robot && a.Reason == wire.ReasonPolicyViolation
		})
		if !refused {
			n++
		}
	}
	return n
}

// failedRobots returns the robots on which the task failed, including that of an attempt that has
// just exited.
func (w *Input) failedRobots() []string {
	failed, last := w.Task.Status.FailedRobots, w.lastRobot()
	if lifecycle.TaskState(w.Task.Status.State) != lifecycle.TaskExited {
		return failed
	}
	if w.hasRunWell() {
		failed = nil
	}
	if last == "" || slices.Contains(failed, last) {
		return failed
	}
	return append(slices.Clone(failed), last)
}

// failureMessage returns the task's message, which the robot's report has set, or a default.
func (p *planner) failureMessage() string {
	return firstNonEmpty(p.status.Message, "the attempt failed")
}

// failTask fails the task for good, unless its lost attempt may still complete.
func (p *planner) failTask(reason, because string) {
	if p.awaitLostAttempt(because) {
		return
	}
	if p.sendSignal(lifecycle.TaskGiveUp, reason, "%s", p.failureMessage()) {
		p.setCondition(v1alpha1.ConditionPlaced, metav1.ConditionFalse, reason, because)
		p.actions.WarningEvent = p.status.Message + " (" + because + ")"
	}
}

// rescheduleTask lets another robot run the task after the delay.
func (p *planner) rescheduleTask(delay time.Duration) {
	if !p.sendSignal(lifecycle.TaskReschedule, ReasonRescheduled, "%s", p.failureMessage()) {
		return
	}
	p.status.Restarts, p.status.RetryAt = nil, nil
	if delay > 0 {
		t := metav1.NewMicroTime(p.now.Add(delay))
		p.status.RetryAt = &t
	}
	p.actions.Rebind = &RobotBinding{}
	because := fmt.Sprintf("it failed on robot %s; another robot will be tried", p.lastRobot())
	p.setCondition(v1alpha1.ConditionPlaced, metav1.ConditionFalse, ReasonRescheduled, because)
	p.actions.WarningEvent = p.status.Message + " (" + because + ")"
}

// nextReschedule returns the delay before the attempt on the next robot, and whether the policy
// allows one. Without a policy only softFailLimit applies.
func (p *planner) nextReschedule() (delay time.Duration, more bool) {
	policy := p.reschedulePolicy()
	if policy == nil {
		return 0, true
	}
	n := p.countFailedRobots(policy.Interval.Value())
	if !policy.Unlimited && n > int(policy.Attempts) {
		return 0, false
	}
	return rescheduleDelay(policy, n), true
}

// countFailedRobots counts the robots on which the task failed within the interval, by their own
// clocks, including the current one. If the interval is 0, it counts all of them.
func (p *planner) countFailedRobots(interval time.Duration) int {
	if interval == 0 {
		return p.countFaults()
	}
	robots := map[string]bool{p.lastRobot(): true}
	for _, a := range p.status.Attempts {
		end, known := p.attemptEnd(&a)
		if known && p.now.Sub(end) < interval && a.Reason != wire.ReasonPolicyViolation && slices.Contains(p.status.FailedRobots, a.Robot) {
			robots[a.Robot] = true
		}
	}
	return len(robots)
}

// attemptEnd returns when an attempt ended, if known. An attempt that the manager timed out counts
// as ended at the end of its timeout, which is that of its last run.
func (w *Input) attemptEnd(a *v1alpha1.TaskAttempt) (time.Time, bool) {
	switch {
	case a.FinishedAt != nil:
		return a.FinishedAt.Time, true
	case isTimedOut(a) && taskstate.LastRunStart(a) != nil:
		return taskstate.LastRunStart(a).Add(w.attemptTimeout()), true
	}
	return time.Time{}, false
}

// isTimedOut reports whether the manager ended the attempt and its robot has not reported the end.
func isTimedOut(a *v1alpha1.TaskAttempt) bool {
	return a.FinishedAt == nil && a.State == string(lifecycle.TaskFailed)
}

// rescheduleDelay returns the delay before the n-th attempt on another robot, counted from 1.
func rescheduleDelay(policy *v1alpha1.ReschedulePolicy, n int) time.Duration {
	limit := policy.MaxDelay.Value()
	delay, before := policy.Delay.Value(), time.Duration(0)
	for range n - 1 {
		switch policy.DelayFunction {
		case v1alpha1.DelayConstant:
		case v1alpha1.DelayFibonacci:
			delay, before = delay+before, delay
		default:
			delay *= 2
		}
		if limit > 0 && delay > limit || delay > maxRescheduleDelay {
			break
		}
	}
	if limit > 0 {
		delay = min(delay, limit)
	}
	return min(delay, maxRescheduleDelay)
}

// maxRescheduleDelay bounds the delay if the policy has no maxDelay.
const maxRescheduleDelay = 24 * time.Hour
