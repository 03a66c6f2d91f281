package gateway

import (
	"container/heap"
	"time"

	"k8s.io/apimachinery/pkg/types"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// legacyAnswerTimeout bounds how long a dispatch to a legacy agent waits for the answer to the
// previous one, and a task list for the answers to all dispatches.
const legacyAnswerTimeout = 5 * time.Second

// awaitedAnswer is the answer of a legacy agent that the next dispatch to it waits for. Such an agent
// reads nothing while it handles a message and waits for an acknowledgement of the broker, which
// never arrives behind further messages.
type awaitedAnswer struct {
	uid   types.UID // of the dispatched task
	until time.Time
}

// awaitedUntilLocked returns until when a dispatch waits at most for the answer to another one. Zero:
// it does not wait.
func (d *downlink) awaitedUntilLocked(uid types.UID, robotID string) time.Time {
	if a := d.awaited[robotID]; a.uid != uid {
		return a.until
	}
	return time.Time{}
}

// stopAwaitingLocked makes the dispatches due that have waited for the answer to this one.
func (d *downlink) stopAwaitingLocked(answered *item) {
	if d.awaited[answered.robot].uid != answered.uid {
		return
	}
	delete(d.awaited, answered.robot)
	isIdle := true
	for _, i := range d.unansweredLocked(answered.robot) {
		isIdle = false
		if i.tries == 0 {
			i.due = d.now()
			heap.Fix(&d.due, i.index)
		}
	}
	if isIdle {
		d.onAnswered(answered.robot)
	}
	d.wakeUp()
}

// unansweredLocked returns the dispatches that a robot has not answered, sent or not.
func (d *downlink) unansweredLocked(robotID string) (unanswered []*item) {
	for _, t := range d.objects.tasksOn(robotID) {
		if i := d.items[t.UID]; i != nil && i.robot == robotID && i.isUnansweredCreate() {
			unanswered = append(unanswered, i)
		}
	}
	return unanswered
}

// isUnansweredCreate reports whether an item is a dispatch that waits for an answer. A task in state
// unknown is not dispatched to a legacy agent.
func (i *item) isUnansweredCreate() bool {
	return i.action == wire.ActionCreate && i.index >= 0 && i.state != string(lifecycle.TaskUnknown)
}

// unansweredTasks returns the tasks whose dispatch a robot has not answered.
func (d *downlink) unansweredTasks(robotID string) map[types.UID]bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	tasks := map[types.UID]bool{}
	for _, i := range d.unansweredLocked(robotID) {
		tasks[i.uid] = true
	}
	return tasks
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// sendRegistrationList publishes the list of a robot that has registered, at once. That of a legacy
// agent lacks the tasks that are about to be dispatched: the agent would start them all while
// dispatches arrive. The whole list follows.
func (l *taskLists) sendRegistrationList(robotID string) {
	unanswered := l.unanswered(robotID)
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.stateLocked(robotID)
	c.leftOut = unanswered
	l.sendListLocked(l.currentConnection(), robotID)
	c.leftOut = nil
}

// awaitAnswers postpones a list of a legacy agent that is due until the agent has answered all
// dispatches, for at most legacyAnswerTimeout.
func (l *taskLists) awaitAnswers(robotID string) {
	if l.postponeForAnswers(robotID) && len(l.unanswered(robotID)) == 0 { // in this order: no answer is missed
		l.onAnswered(robotID)
	}
}

// postponeForAnswers postpones a due list of a legacy agent, unless it has waited for long enough.
func (l *taskLists) postponeForAnswers(robotID string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	at, ok := l.dirty[robotID]
	if !ok || at.After(now) || l.protocolOf(robotID) != robotv1.ProtocolV1 {
		return false
	}
	c := l.stateLocked(robotID)
	if c.answersUntil.IsZero() {
		c.answersUntil = now.Add(legacyAnswerTimeout)
	}
	if !c.answersUntil.After(now) {
		return false
	}
	l.dirty[robotID] = c.answersUntil
	return true
}

// onAnswered makes a list due that has waited for the answers of a legacy agent. If the agent has ended
// a task meanwhile, the list has another time, which waits for a pause of the ends.
func (l *taskLists) onAnswered(robotID string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c, now := l.states[robotID], l.now()
	if c == nil || !c.answersUntil.After(now) {
		return
	}
	if l.dirty[robotID].Equal(c.answersUntil) {
		l.dirty[robotID] = now
	}
	c.answersUntil = now
	l.wakeUp()
}
