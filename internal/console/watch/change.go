package events

import (
	"time"

	"k8s4r.io/k8s4r/internal/events/row"
)

// change is what a reader is told when an object is another one than before. Nothing, if
// nobody sees a difference.
func change(old, item *Item, at time.Time) []Event {
	switch {
	case old == nil:
		return []Event{became(nil, item, at)}
	case old.Row.UID != item.Row.UID: // its end was missed
		return []Event{removal(old, version(item.Object), at), became(nil, item, at)}
	case old.Row.ResourceVersion == item.Row.ResourceVersion || row.Same(old.Object, item.Object):
		return nil
	}
	return []Event{became(old, item, at)}
}

// became is one event. Old is nil when the object was added.
func became(old, item *Item, at time.Time) Event {
	r := item.Row
	e := event(Changed, r, at)
	e.Seq, e.To, e.Reason, e.Message, e.crowd = version(item.Object), r.State, r.Reason, r.Message, crowdOf(old, item)
	if old == nil {
		e.Type = Added
	} else {
		e.From = old.Row.State
	}
	return e
}

// removal is the end of an object, written as seq.
func removal(old *Item, seq uint64, at time.Time) Event {
	e := event(Removed, old.Row, at)
	e.Seq, e.From = seq, old.Row.State
	return e
}

func event(what Type, r *row.Row, at time.Time) Event {
	return Event{Type: what, Kind: r.Kind, Namespace: r.Namespace, Name: r.Name, UID: r.UID, Row: r, Time: at}
}

// fill is change after a time in which nobody watched: what the object remembers of that time
// comes before how it is now.
func fill(old, item *Item, now time.Time) []Event {
	out := change(old, item, now)
	if len(out) == 0 {
		return nil
	}
	last := &out[len(out)-1]
	from := old
	if last.Type == Added {
		from = nil
	}
	var told []Event
	for _, p := range past(from, item) {
		e := *last
		e.To, e.Reason, e.Message, e.Time, e.Filled = p.State, p.Reason, "", p.At, true
		told = append(told, e)
		last.Type, last.From = Changed, p.State
	}
	for i := 1; i < len(told); i++ {
		told[i].Type, told[i].From = Changed, told[i-1].To
	}
	end := out[len(out)-1]
	return append(append(out[:len(out)-1:len(out)-1], told...), end)
}
