package task

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/lifecycle"
	"k8s4r.io/k8s4r/internal/wire"
)

// The reasons of a task that is not tried again.
const (
	ReasonNoCapableRobot = "NoCapableRobot"
	ReasonRescheduled    = "Rescheduled"
)

// conclude decides what follows from an attempt that has exited
// (docs/spec/task.md, Failure).
func (p *plan) conclude() {
	reason := p.status.Reason
	if a := p.present(); a != nil && a.Reason != "" {
		reason = a.Reason
	}
	switch {
	case wire.NoFault(reason):
		p.giveBack(reason)
	case p.outdated() != "":
		// The robot may not do for the new definition, whose failure this is not.
		p.giveBack(p.outdated())
	case p.robotLost() && p.staysHere():
		p.awaitRobot()
	case !p.placedIs(ReasonOriginalAway) && p.restart():
		// Else all is decided but for the original, or an interval of the policy
		// that ends meanwhile would begin everything anew.
	default:
		p.fail(reason)
	}
}

// restart runs the task again on its robot, as far as its restartPolicy goes.
// It tells whether that is what happens, now or later.
func (p *plan) restart() bool {
	policy := restartPolicy(&p.Task.Spec)
	if policy == nil || policy.Attempts == 0 || p.robotLost() && (p.Robot == nil || p.Capable) {
		return false
	}
	r := p.restarts(policy)
	if r.Count >= policy.Attempts && !endless(policy) {
		if policy.Mode != v1alpha1.RestartDelay {
			return false
		}
		return p.retryAt(r.Since.Add(policy.Interval.Value()), "the restarts of this interval are used up")
	}
	if why := p.mayNotRestart(); why != "" {
		p.giveBack(why)
		return true
	}
	if delay := restartDelay(policy); p.status.RetryAt == nil && delay > 0 {
		return p.retryAt(p.now.Add(delay), p.howItEnded())
	}
	p.restartWhenDue(policy, r)
	return true
}

// restartWhenDue runs the task again unless that is put off, or its robot is away
// for a moment.
func (p *plan) restartWhenDue(policy *v1alpha1.RestartPolicy, r v1alpha1.Restarts) {
	if at := p.status.RetryAt; at != nil && p.now.Before(at.Time) {
		p.wake(at.Time)
		return
	}
	if p.robotPhase() != lifecycle.RobotOnline {
		return // its phase wakes us
	}
	if p.waitsForEnd() {
		return // the attempt that timed out may be what still runs there
	}
	r.Count++
	of := ""
	if !endless(policy) {
		of = fmt.Sprintf(" of %d", policy.Attempts)
	}
	if p.step(lifecycle.TaskRestart, "", "Dispatching to %s again (restart %d%s)", r.Robot, r.Count, of) {
		p.open(r.Robot)
		p.status.Restarts = &r
		p.placed(r.Robot)
	}
}

// endless tells whether the restarts never run out: mode delay waits for the
// next interval, and without one there is nothing to wait for.
func endless(policy *v1alpha1.RestartPolicy) bool {
	return policy.Mode == v1alpha1.RestartDelay && policy.Interval.Value() == 0
}

// minEndlessDelay keeps a command that fails at once from being restarted as fast
// as the API server takes the writes.
const minEndlessDelay = time.Second

// restartDelay is the time between the end of an attempt and the next restart.
func restartDelay(policy *v1alpha1.RestartPolicy) time.Duration {
	if endless(policy) {
		return max(policy.Delay.Value(), minEndlessDelay)
	}
	return policy.Delay.Value()
}

// howItEnded is for people: what is kept running may end without failing.
func (p *plan) howItEnded() string {
	if code := p.status.ExitCode; code != nil && *code == 0 {
		return "it ended"
	}
	return "it failed"
}

// mayNotRestart is why a task that has restarts left waits with the others, or for
// another robot: none may fail because of a pause or a drain, or because its robot is
// its namespace's no more. Empty: nothing.
func (p *plan) mayNotRestart() string {
	switch {
	case p.Evict != "":
		return p.Evict
	case p.jobState().Holds():
		return string(p.jobState())
	case p.Robot != nil && !p.Robot.Serves(p.Task.Namespace):
		return "it is no longer shared with namespace " + p.Task.Namespace
	}
	return ""
}

// restarts on the present robot within the present interval.
func (p *plan) restarts(policy *v1alpha1.RestartPolicy) v1alpha1.Restarts {
	robot := p.lastRobot()
	interval := policy.Interval.Value()
	r := p.status.Restarts
	if r == nil || r.Robot != robot || interval > 0 && !p.now.Before(r.Since.Add(interval)) {
		return v1alpha1.Restarts{Robot: robot, Since: metav1.NewMicroTime(p.now)}
	}
	return *r
}

// retryAt puts the next attempt off, and says so once.
func (p *plan) retryAt(at time.Time, because string) bool {
	if have := p.status.RetryAt; have == nil || have.Time.Before(at.Truncate(time.Microsecond)) {
		t := metav1.NewMicroTime(at)
		p.status.RetryAt = &t
		p.status.Message = fmt.Sprintf("Restarting in %s: %s", at.Sub(p.now).Round(time.Second), because)
		p.out.Status = p.status
	}
	p.wake(p.status.RetryAt.Time)
	return true
}

// fail lets the robot join the task's failure list, and decides whether another
// one is to try. What the robot said stays the task's message; why it is not
// tried again is in the condition.
func (p *plan) fail(reason string) {
	if p.staysHere() {
		p.giveUp(reason, "its restartPolicy allows no further attempt, and it belongs to its robot")
		return
	}
	s := p.status
	s.FailedRobots = p.failing()
	delay, more := p.reschedule()
	switch limit := p.softFailLimit(); {
	case len(s.FailedRobots) >= limit:
		p.giveUp(reason, fmt.Sprintf("it failed on %d robots, and softFailLimit is %d", len(s.FailedRobots), limit))
	case !more:
		p.giveUp(reason, "its reschedulePolicy allows no further attempt")
	case !p.Capable:
		p.giveUp(ReasonNoCapableRobot, "no other robot could ever take it")
	default:
		p.elsewhere(delay)
	}
}

// lastRobot is where the attempt ran. The Task itself may name it no more, after
// a crash between the two writes that hand it on.
func (w *World) lastRobot() string { return w.Task.RobotOfAttempt() }

// failing are the robots that have failed the task, once the attempt that has
// just exited is judged.
func (w *World) failing() []string {
	failed, last := w.Task.Status.FailedRobots, w.lastRobot()
	if lifecycle.TaskState(w.Task.Status.State) != lifecycle.TaskExited {
		return failed
	}
	if w.ranWell() {
		failed = nil
	}
	if last == "" || slices.Contains(failed, last) {
		return failed
	}
	return append(slices.Clone(failed), last)
}

// said is the task's message, for a step that has nothing better to say.
func (p *plan) said() string { return or(p.status.Message, "the attempt failed") }

// giveUp fails the task for good, unless its original may still complete.
func (p *plan) giveUp(reason, because string) {
	if p.awaitsOriginal(because) {
		return
	}
	if p.step(lifecycle.TaskGiveUp, reason, "%s", p.said()) {
		p.mark(v1alpha1.ConditionPlaced, metav1.ConditionFalse, reason, because)
		p.out.Warning = p.status.Message + " (" + because + ")"
	}
}

// elsewhere lets another robot try, after the delay.
func (p *plan) elsewhere(delay time.Duration) {
	if !p.step(lifecycle.TaskReschedule, ReasonRescheduled, "%s", p.said()) {
		return
	}
	p.status.Restarts, p.status.RetryAt = nil, nil
	if delay > 0 {
		t := metav1.NewMicroTime(p.now.Add(delay))
		p.status.RetryAt = &t
	}
	p.out.Rebind = &Placing{}
	because := fmt.Sprintf("robot %s failed it, another one is to try", p.lastRobot())
	p.mark(v1alpha1.ConditionPlaced, metav1.ConditionFalse, ReasonRescheduled, because)
	p.out.Warning = p.status.Message + " (" + because + ")"
}

// reschedule is how long the task waits for its next robot, and whether its
// policy allows one. Without a policy only the number of robots bounds it.
func (p *plan) reschedule() (delay time.Duration, more bool) {
	policy := p.reschedulePolicy()
	if policy == nil {
		return 0, true
	}
	n := p.failedWithin(policy.Interval.Value())
	if !policy.Unlimited && n > int(policy.Attempts) {
		return 0, false
	}
	return rescheduleDelay(policy, n), true
}

// failedWithin is how many robots have failed the task in the last so long, by
// their own clocks; in its whole life when that is 0. The present one counts.
func (p *plan) failedWithin(interval time.Duration) int {
	if interval == 0 {
		return len(p.status.FailedRobots)
	}
	robots := map[string]bool{p.lastRobot(): true}
	for _, a := range p.status.Attempts {
		end, known := p.endOf(&a)
		if known && p.now.Sub(end) < interval && slices.Contains(p.status.FailedRobots, a.Robot) {
			robots[a.Robot] = true
		}
	}
	return len(robots)
}

// endOf is when an attempt ended, and of one that the manager has timed out when
// it should have. It tells whether that is known.
func (w *World) endOf(a *v1alpha1.TaskAttempt) (time.Time, bool) {
	switch {
	case a.FinishedAt != nil:
		return a.FinishedAt.Time, true
	case timedOut(a) && a.StartedAt != nil:
		return a.StartedAt.Add(w.Task.Spec.Timeout.Value()), true
	}
	return time.Time{}, false
}

// timedOut tells whether the manager has ended the attempt, and its robot has not
// said that it has ended.
func timedOut(a *v1alpha1.TaskAttempt) bool {
	return a.FinishedAt == nil && a.State == string(lifecycle.TaskFailed)
}

// rescheduleDelay before the n-th attempt on another robot, from 1.
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
		if limit > 0 && delay > limit || delay > maxDelay {
			break
		}
	}
	if limit > 0 {
		delay = min(delay, limit)
	}
	return min(delay, maxDelay)
}

// maxDelay bounds delays that grow without a bound of their own.
const maxDelay = 24 * time.Hour

// hopeless tells whether every robot that could take the task has failed it or
// is blocked: waiting would not help it.
func (p *plan) hopeless() bool {
	return p.excludes() && !p.Capable
}
