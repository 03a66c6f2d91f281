package watch

import (
	"time"

	"k8s4r.io/k8s4r/internal/console/row"
)

// diffEvents returns the events for a new version of an object. It returns none if the versions
// look the same to users.
func diffEvents(old, item *Item, at time.Time) []Event {
	switch {
	case old == nil:
		return []Event{changeEvent(nil, item, at)}
	case old.Row.UID != item.Row.UID: // its removal was missed
		return []Event{removalEvent(old, objectVersion(item.Object), at), changeEvent(nil, item, at)}
	case old.Row.ResourceVersion == item.Row.ResourceVersion || row.LooksEqual(old.Object, item.Object):
		return nil
	}
	return []Event{changeEvent(old, item, at)}
}

// changeEvent returns one event. If old is nil, the object was added.
func changeEvent(old, item *Item, at time.Time) Event {
	r := item.Row
	e := newEvent(Changed, r, at)
	e.Seq, e.To, e.Reason, e.Message, e.batch = objectVersion(item.Object), r.State, r.Reason, r.Message, findBatch(old, item)
	if old == nil {
		e.Type = Added
	} else {
		e.From = old.Row.State
	}
	return e
}

// removalEvent returns the event for the removal of an object at resource version seq.
func removalEvent(old *Item, seq uint64, at time.Time) Event {
	e := newEvent(Removed, old.Row, at)
	e.Seq, e.From = seq, old.Row.State
	return e
}

func newEvent(what Type, r *row.Row, at time.Time) Event {
	return Event{Type: what, Kind: r.Kind, Namespace: r.Namespace, Name: r.Name, UID: r.UID, Row: r, Time: at}
}

// catchUpEvents is diffEvents for versions with an unwatched time in between. States that the
// object recorded for that time come before the current one.
func catchUpEvents(old, item *Item, now time.Time) []Event {
	out := diffEvents(old, item, now)
	if len(out) == 0 {
		return nil
	}
	last := &out[len(out)-1]
	from := old
	if last.Type == Added {
		from = nil
	}
	var recorded []Event
	for _, p := range listRecordedStates(from, item) {
		e := *last
		e.To, e.Reason, e.Message, e.Time, e.Filled = p.State, p.Reason, "", p.At, true
		recorded = append(recorded, e)
		last.Type, last.From = Changed, p.State
	}
	for i := 1; i < len(recorded); i++ {
		recorded[i].Type, recorded[i].From = Changed, recorded[i-1].To
	}
	end := out[len(out)-1]
	return append(append(out[:len(out)-1:len(out)-1], recorded...), end)
}
