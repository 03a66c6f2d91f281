package gateway

import (
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// acceptedWriteDelay is how long after the robot's answer the condition Accepted is written if the
// task does not run yet. Most tasks run sooner, which saves the write.
const acceptedWriteDelay = 10 * time.Second

// acceptance is whether a robot has accepted an attempt, for the condition Accepted.
type acceptance struct {
	accepted bool
	// since is when the robot answered, or when the dispatch that it has not answered was first
	// sent.
	since time.Time
}

// acceptedDispatch is a dispatch that a robot has answered.
type acceptedDispatch struct {
	uid     types.UID
	robot   string
	attempt int32
	at      time.Time
}

// acceptedDispatches holds the dispatches that were answered within acceptedWriteDelay, in the
// order of the answers. Their number is bounded by that of the dispatches.
type acceptedDispatches struct {
	mu  sync.Mutex
	all []acceptedDispatch
}

func (a *acceptedDispatches) add(d acceptedDispatch) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all = append(a.all, d)
}

// takeDue removes and returns those that were answered acceptedWriteDelay ago.
func (a *acceptedDispatches) takeDue(now time.Time) []acceptedDispatch {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := 0
	for n < len(a.all) && now.Sub(a.all[n].at) >= acceptedWriteDelay {
		n++
	}
	due := a.all[:n:n]
	if a.all = a.all[n:]; len(a.all) == 0 {
		a.all = nil // releases the array
	}
	return due
}

// handleAccepted handles a report that a robot has accepted an attempt. It is not a state of the
// task, so most of these reports cause no write.
func (g *Gateway) handleAccepted(r report, isFirst bool) {
	if !r.legacy {
		g.acks.ackTask(r.robot, wire.TaskAck{UID: string(r.uid), Attempt: r.attempt, Seq: r.Seq})
	}
	if isFirst {
		g.accepted.add(acceptedDispatch{uid: r.uid, robot: r.robot, attempt: r.attempt, at: r.receivedAt})
	}
}

// reportAccepted reports the accepted attempts that still do not run.
func (g *Gateway) reportAccepted(now time.Time) {
	for _, d := range g.accepted.takeDue(now) {
		r := report{robot: d.robot, uid: d.uid, attempt: d.attempt, acceptance: &acceptance{accepted: true, since: d.at}}
		if awaitsStart(g.objects.task(d.uid), r) && !g.reports.addReport(r) {
			g.accepted.add(d) // the queue is full
		}
	}
}

// isDispatchTimedOut reports whether a connected robot has not answered a dispatch in time. Agents
// that answer only when the task runs may be downloading its artifacts, so their silence does not
// count.
func (g *Gateway) isDispatchTimedOut(o overdueDispatch, w robotState, silence time.Duration) bool {
	isConnected := w.disconnectReason == "" && w.lastSeen.After(o.since)
	return isConnected && silence >= o.timeout && answersDispatches(w, g.objects.robot(o.robot))
}

// reportDispatchTimeout reports a dispatch that was not answered in time.
func (g *Gateway) reportDispatchTimeout(o overdueDispatch) {
	r := report{robot: o.robot, uid: o.uid, attempt: o.attempt, acceptance: &acceptance{since: o.since}}
	if !g.reports.addReport(r) {
		g.m.countDropped(wire.KindStatus, dropQueueFull, 1) // the next repetition reports it again
	}
}

// answersDispatches reports whether the robot's agent answers each dispatch that it accepts.
func answersDispatches(w robotState, r *robotv1.Robot) bool {
	if !w.registered.IsZero() {
		return w.answersDispatches
	}
	return r != nil && r.Status.Agent != nil && r.Status.Agent.AnswersDispatches
}

// awaitsStart reports whether a task waits for the robot to start the attempt of the report.
func awaitsStart(t *robotv1.Task, r report) bool {
	if t == nil || t.Status.Attempt != r.attempt || t.CurrentRobot() != r.robot || t.Status.IsStopRequested() {
		return false
	}
	state := lifecycle.TaskState(t.Status.State)
	return state == lifecycle.TaskDispatching || state == lifecycle.TaskUnknown
}

// applyAcceptance is applyReport for the condition Accepted.
func applyAcceptance(t *robotv1.Task, r report) reportOutcome {
	if !awaitsStart(t, r) || meta.IsStatusConditionFalse(t.Status.Conditions, robotv1.ConditionSecretsReady) {
		return reportOutcome{drop: dropNothingNew}
	}
	c := metav1.Condition{
		Type: robotv1.ConditionAccepted, Status: metav1.ConditionTrue, Reason: robotv1.ReasonJournaled,
		Message: fmt.Sprintf("robot %s has accepted the attempt and prepares it", r.robot), LastTransitionTime: metav1.NewTime(r.acceptance.since),
	}
	if !r.acceptance.accepted {
		c.Status, c.Reason = metav1.ConditionFalse, robotv1.ReasonDispatchUnanswered
		c.Message = fmt.Sprintf("robot %s is connected but has not answered the dispatch within %s", r.robot, dispatchTimeout(t))
	}
	next := t.Status.DeepCopy()
	if !meta.SetStatusCondition(&next.Conditions, c) {
		return reportOutcome{drop: dropNothingNew}
	}
	return reportOutcome{status: next}
}

// dispatchTimeout returns how long a connected robot may take to accept an attempt of a Task.
func dispatchTimeout(t *robotv1.Task) time.Duration {
	if d := t.Spec.DispatchTimeout.Value(); d > 0 {
		return d
	}
	return robotv1.DefaultDispatchTimeout
}
