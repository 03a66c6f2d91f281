package journal

import (
	"encoding/json"
	"fmt"
	"time"

	"k8s4r.io/k8s4r/internal/wire"
)

// Kind says what a record states about its attempt.
type Kind string

// The kinds of records, in the order of a life.
const (
	// Accepted: the agent has taken on the attempt and may start it.
	Accepted Kind = "accepted"
	// Dropped: the attempt was accepted, and never begun by an agent that is
	// gone. It is as if it had never come.
	Dropped Kind = "dropped"
	// Started: a process runs.
	Started Kind = "started"
	// Adopted: a later agent has found the attempt as one before left it.
	Adopted Kind = "adopted"
	// Ended: the attempt is over. It also stands alone, for an attempt that
	// was turned down at once.
	Ended Kind = "ended"
	// Acked: the server has written the end down.
	Acked Kind = "acked"
)

// durable tells whether a record must be on the disk before anything is done
// that builds on it.
func (k Kind) durable() bool { return k == Accepted || k == Adopted || k == Ended }

// Record is one line of the journal.
type Record struct {
	Kind    Kind      `json:"kind"`
	UID     string    `json:"uid"`
	Attempt int32     `json:"attempt"`
	At      time.Time `json:"at"`

	Task    *wire.Task   `json:"task,omitempty"`    // of Accepted
	Said    *Stamp       `json:"said,omitempty"`    // of Accepted
	BootID  string       `json:"bootId,omitempty"`  // of Accepted: it cannot run on in another boot
	Process *Process     `json:"process,omitempty"` // of Started
	Status  *wire.Status `json:"status,omitempty"`  // of Ended: the report

	n uint64 // place in the journal
}

// Stamp says when the server sent the dispatch (wire.Dispatch).
type Stamp struct {
	Era   string `json:"era"`
	Epoch uint64 `json:"epoch"`
}

// Process identifies a process beyond its end and beyond a reboot.
type Process struct {
	PID int `json:"pid"`
	// StartTicks is the start time in clock ticks since boot.
	StartTicks uint64 `json:"startTicks"`
	BootID     string `json:"bootId"`
}

// encoded is a record with its JSON.
type encoded struct {
	Record
	payload []byte
}

func encode(recs []Record) ([]encoded, error) {
	all := make([]encoded, len(recs))
	for i, r := range recs {
		payload, err := json.Marshal(r)
		if err != nil {
			return nil, fmt.Errorf("encode journal record: %w", err)
		}
		if len(payload) > maxPayload {
			return nil, fmt.Errorf("journal record of %d bytes is larger than %d", len(payload), maxPayload)
		}
		all[i] = encoded{Record: r, payload: payload}
	}
	return all, nil
}
