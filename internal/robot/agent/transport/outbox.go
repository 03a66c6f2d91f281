package transport

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// The pause before an unacknowledged report is sent again doubles from the first to the
// second of these.
const (
	minResendPause = time.Second
	maxResendPause = wire.MaxRepeatInterval
)

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

	mu          sync.Mutex
	isConnected bool
	pending     map[reportKey]*pendingReport
	order       uint64
	wake        chan struct{}
	empty       chan struct{} // closed when nothing is pending; nil: no call of Drained waits
}

type pendingReport struct {
	status      wire.Status
	order       uint64 // of Put
	dueAt       time.Time
	resendPause time.Duration // the next one
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
	o.pending[key] = &pendingReport{status: s, order: o.order, dueAt: o.now(), resendPause: minResendPause}
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
	if !connected {
		return
	}
	now := o.now()
	for _, p := range o.pending {
		p.dueAt, p.resendPause = now, minResendPause
	}
	o.wakeUp()
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
			p.dueAt, p.resendPause = now.Add(p.resendPause), min(2*p.resendPause, maxResendPause)
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
