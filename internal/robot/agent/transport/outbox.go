package transport

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// resendPause is the pause before an unacknowledged report is sent again. A busy server acknowledges
// late, and each repetition would add to its work. What was lost with a connection of the agent or
// the server does not wait for it.
const resendPause = wire.MaxRepeatInterval

// reportKey identifies one attempt of one task.
type reportKey struct {
	uid     string
	attempt int32
}

// Outbox repeats the last report about each attempt until the server acknowledges that it
// has written it. One goroutine serves all of them.
type Outbox struct {
	send func(context.Context, wire.Status) error
	now  func() time.Time

	mu               sync.Mutex
	isConnected      bool
	serverConnection string // the last one that was seen
	pending          map[reportKey]*pendingReport
	order            uint64
	wake             chan struct{}
	empty            chan struct{} // closed when nothing is pending; nil: no call of Drained waits
}

type pendingReport struct {
	status wire.Status
	order  uint64 // of Put
	dueAt  time.Time
}

// NewOutbox returns an Outbox without reports. Run sends them.
func NewOutbox(send func(context.Context, wire.Status) error, now func() time.Time) *Outbox {
	return &Outbox{send: send, now: now, pending: map[reportKey]*pendingReport{}, wake: make(chan struct{}, 1)}
}

// Put adds a report, to be sent at once. It replaces an earlier one about the same attempt,
// and is dropped if it is older than that.
func (o *Outbox) Put(s wire.Status) {
	o.mu.Lock()
	defer o.mu.Unlock()
	key := reportKey{s.TaskUID, s.Attempt}
	if old := o.pending[key]; old != nil && old.status.Seq > s.Seq {
		return
	}
	o.order++
	o.pending[key] = &pendingReport{status: s, order: o.order, dueAt: o.now()}
	o.wakeUp()
}

// Acknowledge removes the report about an attempt, unless it is newer than the acknowledged one.
func (o *Outbox) Acknowledge(a wire.TaskAck) {
	o.mu.Lock()
	defer o.mu.Unlock()
	key := reportKey{a.UID, a.Attempt}
	if p := o.pending[key]; p == nil || p.status.Seq > a.Seq {
		return
	}
	delete(o.pending, key)
	o.notifyDrainedLocked()
}

// SetConnected sets whether reports can be sent. After a reconnect all of them are due:
// those that were sent over the old connection may be lost.
func (o *Outbox) SetConnected(connected bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.isConnected = connected
	if connected {
		o.resendAllLocked()
	}
}

// SetServerConnection sets the id of the server's connection to the broker. After a change all
// reports are due: the server that received them may have ended before it had written them.
func (o *Outbox) SetServerConnection(id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if id != "" && id != o.serverConnection {
		o.serverConnection = id
		o.resendAllLocked()
	}
}

func (o *Outbox) resendAllLocked() {
	now := o.now()
	for _, p := range o.pending {
		p.dueAt = now
	}
	o.wakeUp()
}

// IsPending reports whether a report about this attempt waits for its acknowledgment.
func (o *Outbox) IsPending(uid string, attempt int32) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.pending[reportKey{uid, attempt}] != nil
}

// PendingCount returns the number of reports that are not acknowledged.
func (o *Outbox) PendingCount() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.pending)
}

// Drained returns a channel that is closed once nothing is pending.
func (o *Outbox) Drained() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.empty == nil {
		o.empty = make(chan struct{})
	}
	empty := o.empty
	o.notifyDrainedLocked()
	return empty
}

func (o *Outbox) notifyDrainedLocked() {
	if len(o.pending) == 0 && o.empty != nil {
		close(o.empty)
		o.empty = nil
	}
}

func (o *Outbox) wakeUp() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// Run sends due reports until ctx ends.
func (o *Outbox) Run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		for _, s := range o.takeDue() {
			if o.send(ctx, s) != nil {
				break // disconnected; after the reconnect all are due again
			}
		}
		timer.Reset(o.untilNextDue())
		select {
		case <-ctx.Done():
			return
		case <-o.wake:
		case <-timer.C:
		}
	}
}

// takeDue returns the reports to send now, in the order of Put, and sets when each is due
// again.
func (o *Outbox) takeDue() []wire.Status {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.isConnected {
		return nil
	}
	now := o.now()
	var due []*pendingReport
	for _, p := range o.pending {
		if !p.dueAt.After(now) {
			due = append(due, p)
			p.dueAt = now.Add(resendPause)
		}
	}
	return statusesInOrder(due)
}

// untilNextDue returns the time until the next report is due, at most one hour.
func (o *Outbox) untilNextDue() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	first := time.Hour
	if !o.isConnected {
		return first
	}
	now := o.now()
	for _, p := range o.pending {
		first = min(first, p.dueAt.Sub(now))
	}
	return max(first, 0)
}

func statusesInOrder(reports []*pendingReport) []wire.Status {
	slices.SortFunc(reports, func(a, b *pendingReport) int { return cmp.Compare(a.order, b.order) })
	all := make([]wire.Status, len(reports))
	for i, p := range reports {
		all[i] = p.status
	}
	return all
}
