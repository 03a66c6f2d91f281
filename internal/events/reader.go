package events

import "context"

// Reader follows a Ring. It is for one goroutine.
type Reader struct {
	ring *Ring
	at   *node
	// told is the ID of the last event that was told. It is not that of at while a Resync is due:
	// who is cut off then and comes again is still due one.
	told   string
	resync bool // something was missed before at
}

// Next waits for the next event. A Resync says that events were missed, because the reader was
// too slow or came too late; what comes next comes after the moment of the Resync. The error
// is that of the context.
func (d *Reader) Next(ctx context.Context) (*Event, error) {
	for {
		if e := d.Poll(); e != nil {
			return e, nil
		}
		wake := d.ring.waker()
		if d.at.next.Load() != nil { // it came before the waker was there
			continue
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Poll is the next event, if there is one already. Nil: there is none.
func (d *Reader) Poll() *Event {
	next := d.at.next.Load()
	if next.dropped() || next != nil && next.next.Load().dropped() {
		var missed bool
		d.at, missed = d.ring.relocate(d.at)
		d.resync = d.resync || missed
		next = d.at.next.Load()
	}
	switch {
	case d.resync:
		d.resync, d.told = false, d.at.event.ID
		return &Event{Type: Resync, ID: d.at.event.ID, Seq: d.at.event.Seq}
	case next == nil || next.dropped(): // the next call finds its place again
		return nil
	}
	d.at, d.told = next, next.event.ID
	return next.event
}

// Position is the ID of the last event that was told, for another reader to go on from.
func (d *Reader) Position() string { return d.told }

// relocate is where a reader goes on whose event is not held any more, and whether it has
// missed some.
func (r *Ring) relocate(at *node) (*node, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if first := r.first(); first != nil && first.event.number == at.event.number+1 {
		return r.lead(first, at.event.Seq), false
	}
	return r.newest, true
}
