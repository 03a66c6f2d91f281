package gateway

import (
	"container/heap"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// legacyAnswerTimeout bounds how long a dispatch to a legacy agent waits for the answer to the
// previous one.
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
	for _, i := range d.unansweredLocked(answered.robot) {
		if i.tries == 0 {
			i.due = d.now()
			heap.Fix(&d.due, i.index)
		}
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
