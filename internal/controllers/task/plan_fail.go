package task

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/taskstate"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// The reasons of a task that is not tried again.
const (
	ReasonNoCapableRobot = "NoCapableRobot"
	ReasonRescheduled    = "Rescheduled"
)

// concludeAttempt decides what follows from an attempt that has exited
// (docs/reference/kinds/task.md, Failure).
func (p *planner) concludeAttempt() bool {
	if p.state != lifecycle.TaskExited {
		return false
	}
	reason := p.status.Reason
	if a := p.currentAttempt(); a != nil && a.Reason != "" {
		reason = a.Reason
	}
	switch {
	case wire.IsWithoutFault(reason):
		p.returnTask(reason)
	case p.outdatedReason() != "":
		// The robot may not suit the new definition, which has not failed.
		p.returnTask(p.outdatedReason())
	case p.isRobotLost() && p.isTiedToRobot():
		p.awaitOwnRobot()
	default:
		// While the task waits for its lost attempt all else is decided: an interval of the restart
		// policy that ends meanwhile must not restart it.
		isDecided := p.isUnplacedFor(taskstate.ReasonAwaitingLostAttempt)
		if isDecided || !p.restartTask() {
			p.failAttempt(reason)
		}
	}
	return true
}

// restartTask restarts the task on its robot, as far as its restartPolicy allows. It reports
// whether it will, now or later.
func (p *planner) restartTask() bool {
	policy := restartPolicy(&p.Task.Spec)
	if policy == nil || policy.Attempts == 0 || p.isRobotLost() && (p.Robot == nil || p.HasCapableRobot) {
		return false
	}
	r := p.currentRestarts(policy)
	if r.Count >= policy.Attempts && !isEndless(policy) {
		if policy.Mode != v1alpha1.RestartDelay {
			return false
		}
		return p.scheduleRetry(r.Since.Add(policy.Interval.Value()), "the restarts of this interval are used up")
	}
	if why := p.restartObstacle(); why != "" {
		p.returnTask(why)
		return true
	}
	if delay := restartDelay(policy); p.status.RetryAt == nil && delay > 0 {
		return p.scheduleRetry(p.now.Add(delay), p.describeEnd())
	}
	p.restartWhenDue(policy, r)
	return true
}

// restartWhenDue restarts the task unless its delay is not over, or its robot is offline for a
// moment.
func (p *planner) restartWhenDue(policy *v1alpha1.RestartPolicy, r v1alpha1.Restarts) {
	if at := p.status.RetryAt; at != nil && p.now.Before(at.Time) {
		p.requeueAt(at.Time)
		return
	}
	if p.robotPhase() != lifecycle.RobotOnline {
		return // its phase wakes us
	}
	if p.awaitAttemptEnd() {
		return // the attempt that timed out may be what still runs there
	}
	r.Count++
	of := ""
	if !isEndless(policy) {
		of = fmt.Sprintf(" of %d", policy.Attempts)
	}
	if p.sendSignal(lifecycle.TaskRestart, "", "Dispatching to %s again (restart %d%s)", r.Robot, r.Count, of) {
		p.openAttempt(r.Robot)
		p.status.Restarts = &r
		p.setPlaced(r.Robot)
	}
}

// isEndless reports whether restarts never run out: mode delay waits for the next interval, and
// without an interval there is nothing to wait for.
func isEndless(policy *v1alpha1.RestartPolicy) bool {
	return policy.Mode == v1alpha1.RestartDelay && policy.Interval.Value() == 0
}

// minEndlessDelay keeps a command that fails at once from being restarted as fast
// as the API server takes the writes.
const minEndlessDelay = time.Second

// restartDelay returns the time between the end of an attempt and the next restart.
func restartDelay(policy *v1alpha1.RestartPolicy) time.Duration {
	if isEndless(policy) {
		return max(policy.Delay.Value(), minEndlessDelay)
	}
	return policy.Delay.Value()
}

// describeEnd returns how the attempt ended, for a message. Services may end without failing.
func (p *planner) describeEnd() string {
	if code := p.status.ExitCode; code != nil && *code == 0 {
		return "it ended"
	}
	return "it failed"
}

// restartObstacle returns why a task that has restarts left waits with the others, or for another
// robot. A task must not fail because of a pause or a drain, or because its robot is no longer
// shared. Empty if it may restart.
func (p *planner) restartObstacle() string {
	switch {
	case p.EvictionReason != "":
		return p.EvictionReason
	case p.jobState().PausesTasks():
		return string(p.jobState())
	case p.Robot != nil && !p.Robot.ServesNamespace(p.Task.Namespace):
		return "it is no longer shared with namespace " + p.Task.Namespace
	}
	return ""
}

// currentRestarts returns the restarts on the present robot within the present interval.
func (p *planner) currentRestarts(policy *v1alpha1.RestartPolicy) v1alpha1.Restarts {
	robot := p.lastRobot()
	interval := policy.Interval.Value()
	r := p.status.Restarts
	if r == nil || r.Robot != robot || interval > 0 && !p.now.Before(r.Since.Add(interval)) {
		return v1alpha1.Restarts{Robot: robot, Since: metav1.NewMicroTime(p.now)}
	}
	return *r
}

// scheduleRetry postpones the next attempt, and writes that once.
func (p *planner) scheduleRetry(at time.Time, because string) bool {
	if have := p.status.RetryAt; have == nil || have.Time.Before(at.Truncate(time.Microsecond)) {
		t := metav1.NewMicroTime(at)
		p.status.RetryAt = &t
		p.status.Message = fmt.Sprintf("Restarting in %s: %s", at.Sub(p.now).Round(time.Second), because)
		p.actions.Status = p.status
	}
	p.requeueAt(p.status.RetryAt.Time)
	return true
}

// failAttempt adds the robot to the task's failure list, and decides whether another one is tried.
// The robot's report stays the task's message; why it is not tried again is in the condition.
func (p *planner) failAttempt(reason string) {
	if p.isTiedToRobot() {
		p.failTask(reason, "its restartPolicy allows no further attempt, and it belongs to its robot")
		return
	}
	s := p.status
	s.FailedRobots = p.failedRobots()
	delay, more := p.nextReschedule()
	switch limit := p.softFailLimit(); {
	case len(s.FailedRobots) >= limit:
		p.failTask(reason, fmt.Sprintf("it failed on %d robots, and softFailLimit is %d", len(s.FailedRobots), limit))
	case !more:
		p.failTask(reason, "its reschedulePolicy allows no further attempt")
	case !p.HasCapableRobot:
		p.failTask(ReasonNoCapableRobot, "no other robot can run it")
	default:
		p.rescheduleTask(delay)
	}
}

// failedRobots returns the robots that have failed the task, including that of an attempt that has
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

// failureMessage returns the task's message, for a step that has nothing better to report.
func (p *planner) failureMessage() string {
	return firstNonEmpty(p.status.Message, "the attempt failed")
}

// failTask fails the task for good, unless its lost attempt may still complete.
func (p *planner) failTask(reason, because string) {
	if p.awaitsLostAttempt(because) {
		return
	}
	if p.sendSignal(lifecycle.TaskGiveUp, reason, "%s", p.failureMessage()) {
		p.setCondition(v1alpha1.ConditionPlaced, metav1.ConditionFalse, reason, because)
		p.actions.WarningEvent = p.status.Message + " (" + because + ")"
	}
}

// rescheduleTask lets another robot try after the delay.
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
	because := fmt.Sprintf("robot %s failed it; another robot will be tried", p.lastRobot())
	p.setCondition(v1alpha1.ConditionPlaced, metav1.ConditionFalse, ReasonRescheduled, because)
	p.actions.WarningEvent = p.status.Message + " (" + because + ")"
}

// nextReschedule returns how long the task waits for its next robot, and whether its policy allows
// one. Without a policy only the number of robots bounds it.
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

// countFailedRobots counts the robots that have failed the task within the interval, by their own
// clocks, including the present one. If the interval is 0, it counts all.
func (p *planner) countFailedRobots(interval time.Duration) int {
	if interval == 0 {
		return len(p.status.FailedRobots)
	}
	robots := map[string]bool{p.lastRobot(): true}
	for _, a := range p.status.Attempts {
		end, known := p.attemptEnd(&a)
		if known && p.now.Sub(end) < interval && slices.Contains(p.status.FailedRobots, a.Robot) {
			robots[a.Robot] = true
		}
	}
	return len(robots)
}

// attemptEnd returns when an attempt ended, if known. An attempt that the manager has timed out
// counts as ended when its timeout was over.
func (w *Input) attemptEnd(a *v1alpha1.TaskAttempt) (time.Time, bool) {
	switch {
	case a.FinishedAt != nil:
		return a.FinishedAt.Time, true
	case isTimedOut(a) && a.StartedAt != nil:
		return a.StartedAt.Add(w.Task.Spec.Timeout.Value()), true
	}
	return time.Time{}, false
}

// isTimedOut reports whether the manager has ended the attempt, and its robot has not reported its
// end.
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

// maxRescheduleDelay bounds delays that grow without a bound of their own.
const maxRescheduleDelay = 24 * time.Hour
