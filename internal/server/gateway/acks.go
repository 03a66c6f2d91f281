package gateway

import (
	"sync"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// ackWindow delays an acknowledgement, so that more for the same robot can share the
// message.
const ackWindow = 5 * time.Millisecond

// ackBatcher batches acknowledgements to agents. A lost one is repeated when the agent
// repeats its message.
type ackBatcher struct {
	send func(robotID string, a wire.Ack)

	mu      sync.Mutex
	waiting map[string]*wire.Ack // nil: no flush is due
}

// ackTask acknowledges the reports of one attempt up to a sequence number.
func (a *ackBatcher) ackTask(robotID string, t wire.TaskAck) {
	a.addAck(robotID, func(w *wire.Ack) { w.Tasks = append(w.Tasks, t) })
}

// ackLog acknowledges a piece of a log: of the records of runs, or of output.
func (a *ackBatcher) ackLog(robotID string, ofRuns bool, l wire.LogAck) {
	a.addAck(robotID, func(w *wire.Ack) {
		if ofRuns {
			w.Runs = append(w.Runs, l)
		} else {
			w.Logs = append(w.Logs, l)
		}
	})
}

// ackHeartbeat acknowledges the heartbeat with this number, and whether the robot's device is not
// stored yet.
func (a *ackBatcher) ackHeartbeat(robotID string, n uint64, devicePending bool) {
	a.addAck(robotID, func(w *wire.Ack) { w.Heartbeat, w.DevicePending = max(w.Heartbeat, n), devicePending })
}

func (a *ackBatcher) addAck(robotID string, to func(*wire.Ack)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waiting == nil {
		a.waiting = map[string]*wire.Ack{}
		time.AfterFunc(ackWindow, a.flushAcks)
	}
	if a.waiting[robotID] == nil {
		a.waiting[robotID] = &wire.Ack{}
	}
	to(a.waiting[robotID])
}

func (a *ackBatcher) flushAcks() {
	a.mu.Lock()
	due := a.waiting
	a.waiting = nil
	a.mu.Unlock()
	for robotID, w := range due {
		a.send(robotID, *w)
	}
}
