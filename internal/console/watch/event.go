package events

import (
	"encoding/json"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/internal/events/row"
)

// Type is what happened to an object.
type Type string

// The types.
const (
	Added   Type = "added"
	Changed Type = "changed"
	Removed Type = "removed"
	// Resync is no change of an object: something cannot be told one by one, of Event.Kind or
	// where that is empty of all kinds. Who keeps lists loads them anew and goes on from here.
	Resync Type = "resync"
)

// Event is one change of one object. It is shared by all readers, and must not be changed.
type Event struct {
	// ID is the position in the stream just after this event, for Ring.Since.
	ID string
	// Seq is the resourceVersion of the write. Events of one object come in its order; those of
	// two objects may come the other way round, moments apart.
	Seq       uint64
	Type      Type
	Kind      row.Kind
	Namespace string
	Name      string
	UID       string
	// From and To are states, equal where something else changed. From is empty when the object
	// was added, To when it was removed.
	From, To string
	// Reason in one word, Message for people. Empty: nothing is to be said.
	Reason, Message string
	// Time of the change, as exactly as it is known.
	Time time.Time
	// Filled: nobody saw this change as it happened; the object's own history tells of it.
	Filled bool
	// Refresh is how many tasks of one job became To by the job's wish, where they are told of
	// together: who shows them loads those that were written after After. Name, UID and From
	// are empty, Row has the job's words only. Zero: the event is of one object.
	Refresh int
	// After is a resourceVersion before all that a Refresh is about.
	After uint64
	// Row of the object as it is now, or as it was last. Nil: a Resync.
	Row *row.Row
	// JSON of the event as the console's API has it. Without the row of what was removed.
	JSON []byte

	crowd   crowd     // that this change belongs to
	number  uint64    // in this incarnation, from 1
	arrived time.Time // when it was published
}

// Change is the JSON of an event that is no Resync.
type Change struct {
	Seq       string           `json:"seq"`
	Type      Type             `json:"type" enum:"added,changed,removed"`
	Kind      row.Kind         `json:"kind"`
	Namespace string           `json:"namespace"`
	Name      string           `json:"name"`
	UID       string           `json:"uid"`
	Job       string           `json:"job,omitempty"`
	From      string           `json:"from,omitempty"`
	To        string           `json:"to,omitempty"`
	Reason    string           `json:"reason,omitempty"`
	Message   string           `json:"message,omitempty"`
	Time      metav1.MicroTime `json:"time"`
	Filled    bool             `json:"filled,omitempty"`
	Refresh   bool             `json:"refresh,omitempty"`
	Count     int              `json:"count,omitempty"`
	After     string           `json:"after,omitempty"`
	Row       *row.Row         `json:"row,omitempty"`
}

// encode is done once for all readers.
func (e *Event) encode() ([]byte, error) {
	if e.Type == Resync {
		return []byte("{}"), nil
	}
	m := Change{
		Seq: strconv.FormatUint(e.Seq, 10), Type: e.Type, Kind: e.Kind, Namespace: e.Namespace, Name: e.Name, UID: e.UID,
		From: e.From, To: e.To, Reason: e.Reason, Message: e.Message, Time: metav1.NewMicroTime(e.Time), Filled: e.Filled, Row: e.Row,
	}
	switch {
	case e.Refresh > 0:
		m.Row, m.Job, m.Refresh, m.Count, m.After = nil, e.Row.Job, true, e.Refresh, strconv.FormatUint(e.After, 10)
	case e.Type == Removed:
		m.Row = nil
	}
	return json.Marshal(m)
}

// Filter is what a reader asks for. Every field that is not empty must match.
type Filter struct {
	Namespace string
	Kind      row.Kind
	Name      string
	// Job and Flow take in the object of that name and all that belongs to it.
	Job, Flow string
}

// Match tells whether a reader with the filter is to see the event. A Resync is for all, and a
// Refresh, which has no names, for every name.
func (f Filter) Match(e *Event) bool {
	if e.Type == Resync {
		return f.Kind == "" || e.Kind == "" || f.Kind == e.Kind
	}
	return (f.Namespace == "" || f.Namespace == e.Namespace) && (f.Kind == "" || f.Kind == e.Kind) && (f.Name == "" || e.Refresh > 0 || f.Name == e.Name) &&
		(f.Job == "" || f.Job == e.Row.Job) && (f.Flow == "" || f.Flow == e.Row.Flow)
}
