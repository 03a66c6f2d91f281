package bridge

import (
	"sync"
	"time"

	"k8s4r.io/k8s4r/internal/wire"
)

// ackWindow is how long an acknowledgement waits for others to the same robot.
const ackWindow = 5 * time.Millisecond

// acks gathers what our agents are told to stop repeating. What is lost on the
// way is acknowledged again when the agent repeats it.
type acks struct {
	send func(robotID string, a wire.Ack)

	mu      sync.Mutex
	waiting map[string]*wire.Ack // nil: no flush is due
}

// task acknowledges the reports of one attempt up to a sequence number.
func (a *acks) task(robotID string, t wire.TaskAck) {
	a.add(robotID, func(w *wire.Ack) { w.Tasks = append(w.Tasks, t) })
}

// logs acknowledges a part of a log.
func (a *acks) logs(robotID string, l wire.LogAck) {
	a.add(robotID, func(w *wire.Ack) { w.Logs = append(w.Logs, l) })
}

// heartbeat acknowledges the heartbeat with this number.
func (a *acks) heartbeat(robotID string, n uint64) {
	a.add(robotID, func(w *wire.Ack) { w.Heartbeat = max(w.Heartbeat, n) })
}

func (a *acks) add(robotID string, to func(*wire.Ack)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waiting == nil {
		a.waiting = map[string]*wire.Ack{}
		time.AfterFunc(ackWindow, a.flush)
	}
	if a.waiting[robotID] == nil {
		a.waiting[robotID] = &wire.Ack{}
	}
	to(a.waiting[robotID])
}

func (a *acks) flush() {
	a.mu.Lock()
	due := a.waiting
	a.waiting = nil
	a.mu.Unlock()
	for robotID, w := range due {
		a.send(robotID, *w)
	}
}
