package watch

import "context"

// Reader follows a Ring. It must be used by one goroutine at a time.
type Reader struct {
	ring *Ring
	at   *node
	// position is the ID of the last event that was returned. While a Resync is due, it differs
	// from the ID of at, so that a reader that resumes from position still gets the Resync.
	position string
	resync   bool // events before at were missed
}

// Next blocks until the next event. A Resync means that events were missed because the reader was
// too slow, or resumed from an ID that is too old or of another instance; the events after it are
// newer than the Resync. It returns an error only if ctx ends.
func (d *Reader) Next(ctx context.Context) (*Event, error) {
	for {
		if e := d.Poll(); e != nil {
			return e, nil
		}
		wake := d.ring.wakeChannel()
		if d.at.next.Load() != nil { // published before wakeChannel was called
			continue
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Poll returns the next event, or nil if there is none yet.
func (d *Reader) Poll() *Event {
	next := d.at.next.Load()
	if next.isCut() || next != nil && next.next.Load().isCut() {
		var missed bool
		d.at, missed = d.ring.relocateReader(d.at)
		d.resync = d.resync || missed
		next = d.at.next.Load()
	}
	switch {
	case d.resync:
		d.resync, d.position = false, d.at.event.ID
		return &Event{Type: Resync, ID: d.at.event.ID, Seq: d.at.event.Seq}
	case next == nil || next.isCut(): // the next call relocates the reader
		return nil
	}
	d.at, d.position = next, next.event.ID
	return next.event
}

// Position returns the ID of the last event that was returned, from which another reader can
// resume.
func (d *Reader) Position() string { return d.position }

// relocateReader returns where a reader continues after its event was evicted, and whether it has
// missed events.
func (r *Ring) relocateReader(at *node) (*node, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if first := r.firstNode(); first != nil && first.event.number == at.event.number+1 {
		return r.nodeBefore(first, at.event.Seq), false
	}
	return r.newest, true
}
