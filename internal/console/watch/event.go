package watch

import (
	"encoding/json"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/internal/console/row"
)

// Type is the type of an event.
type Type string

// Event types.
const (
	Added   Type = "added"
	Changed Type = "changed"
	Removed Type = "removed"
	// Resync means that changes of Event.Kind cannot be sent one by one; an empty kind means all
	// kinds. Clients with lists must reload them and continue from here.
	Resync Type = "resync"
)

// Event is one change of one object. All readers share it; it must not be changed.
type Event struct {
	// ID is the position in the stream just after this event, for Ring.Since.
	ID string
	// Seq is the resourceVersion of the write. Events of one object are in order. Events of
	// different objects that were written shortly after one another may be swapped.
	Seq       uint64
	Type      Type
	Kind      row.Kind
	Namespace string
	Name      string
	UID       string
	// From and To are states. They are equal if only other fields changed. From is empty for
	// added objects, To for removed ones.
	From, To string
	// Reason is a word in CamelCase and Message is for people. Both may be empty.
	Reason, Message string
	// Time of the change, as exact as it is known.
	Time time.Time
	// Filled is set if the change was not watched but reconstructed from the object's status.
	Filled bool
	// Refresh is the number of tasks of one job that an action changed to To, if one event
	// reports all of them. Clients that show such tasks load those written after After. Name, UID
	// and From are then empty, and Row has the job's fields only. Zero for an event of one
	// object.
	Refresh int
	// After is a resourceVersion before all changes of a Refresh.
	After uint64
	// Row is the current row, or the last one of a removed object. It is nil for a Resync.
	Row *row.Row
	// JSON is the event in the format of the console's API. It has no row for a removed object.
	JSON []byte

	batch  batch  // the mass change that this change belongs to
	number uint64 // within this instance, from 1
}

// Change is the JSON of all events except Resync.
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

// encodeJSON encodes the event once for all readers.
func (e *Event) encodeJSON() ([]byte, error) {
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

// Filter selects events. Every field that is not empty must match.
type Filter struct {
	Namespace string
	Kind      row.Kind
	Name      string
	// Job and Flow select the object of that name and all objects that belong to it.
	Job, Flow string
}

// Matches reports whether the filter selects the event. A Resync matches every filter for its kind.
// A Refresh, which has no name, matches every name.
func (f Filter) Matches(e *Event) bool {
	if e.Type == Resync {
		return f.Kind == "" || e.Kind == "" || f.Kind == e.Kind
	}
	return (f.Namespace == "" || f.Namespace == e.Namespace) && (f.Kind == "" || f.Kind == e.Kind) && (f.Name == "" || e.Refresh > 0 || f.Name == e.Name) &&
		(f.Job == "" || f.Job == e.Row.Job) && (f.Flow == "" || f.Flow == e.Row.Flow)
}
