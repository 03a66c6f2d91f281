package agent

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"k8s4r.io/k8s4r/internal/wire"
)

// The pause after which a report that was not acknowledged is sent again
// doubles from the first to the last of these.
const (
	resendFirst = time.Second
	resendLast  = wire.RepeatWithin
)

// attemptKey names one attempt of one task.
type attemptKey struct {
	uid     string
	attempt int32
}

// outbox repeats the last report of each attempt until the server says that it
// has written it down. One goroutine serves all of them.
type outbox struct {
	send func(context.Context, wire.Status) error
	now  func() time.Time

	mu      sync.Mutex
	up      bool
	pending map[attemptKey]*letter
	order   uint64
	wake    chan struct{}
	empty   chan struct{} // closed when nothing is pending; nil: nobody waits
}

// letter is a report on its way.
type letter struct {
	status wire.Status
	order  uint64 // of being put in
	due    time.Time
	pause  time.Duration // before it is sent the next time
}

func newOutbox(send func(context.Context, wire.Status) error, now func() time.Time) *outbox {
	return &outbox{send: send, now: now, pending: map[attemptKey]*letter{}, wake: make(chan struct{}, 1)}
}

// put adds a report, to be sent at once. It takes the place of an earlier one
// of the same attempt; what is older than the one in place is ignored.
func (o *outbox) put(s wire.Status) {
	o.mu.Lock()
	defer o.mu.Unlock()
	key := attemptKey{s.TaskUID, s.Attempt}
	if old := o.pending[key]; old != nil && old.status.Seq > s.Seq {
		return
	}
	o.order++
	o.pending[key] = &letter{status: s, order: o.order, due: o.now(), pause: resendFirst}
	o.signal()
}

// ack takes out the report of an attempt, if it is not newer than seq.
func (o *outbox) ack(a wire.TaskAck) {
	o.mu.Lock()
	defer o.mu.Unlock()
	key := attemptKey{a.UID, a.Attempt}
	if l := o.pending[key]; l == nil || l.status.Seq > a.Seq {
		return
	}
	delete(o.pending, key)
	o.settle()
}

// connected says whether reports can be sent. After a new connection all of
// them are due, for nobody knows what became of them on the old one.
func (o *outbox) connected(up bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.up = up
	if !up {
		return
	}
	now := o.now()
	for _, l := range o.pending {
		l.due, l.pause = now, resendFirst
	}
	o.signal()
}

// waiting is the number of reports that are not acknowledged.
func (o *outbox) waiting() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.pending)
}

// drained returns a channel that is closed once nothing is pending.
func (o *outbox) drained() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.empty == nil {
		o.empty = make(chan struct{})
	}
	empty := o.empty
	o.settle()
	return empty
}

// settle tells who waits for an empty outbox. Its caller holds the lock.
func (o *outbox) settle() {
	if len(o.pending) == 0 && o.empty != nil {
		close(o.empty)
		o.empty = nil
	}
}

func (o *outbox) signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// run sends what is due until ctx ends.
func (o *outbox) run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		for _, s := range o.due() {
			if o.send(ctx, s) != nil {
				break // the connection is gone; the next one makes all due again
			}
		}
		timer.Reset(o.wait())
		select {
		case <-ctx.Done():
			return
		case <-o.wake:
		case <-timer.C:
		}
	}
}

// due returns the reports to send now, oldest first, and sets when each is due
// again.
func (o *outbox) due() []wire.Status {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.up {
		return nil
	}
	now := o.now()
	var letters []*letter
	for _, l := range o.pending {
		if !l.due.After(now) {
			letters = append(letters, l)
			l.due, l.pause = now.Add(l.pause), min(2*l.pause, resendLast)
		}
	}
	return inOrder(letters)
}

// wait is the time until the next report is due.
func (o *outbox) wait() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	first := time.Hour
	if !o.up {
		return first
	}
	now := o.now()
	for _, l := range o.pending {
		first = min(first, l.due.Sub(now))
	}
	return max(first, 0)
}

func inOrder(letters []*letter) []wire.Status {
	slices.SortFunc(letters, func(a, b *letter) int { return cmp.Compare(a.order, b.order) })
	all := make([]wire.Status, len(letters))
	for i, l := range letters {
		all[i] = l.status
	}
	return all
}
