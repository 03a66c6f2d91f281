package journal

import (
	"encoding/json"
	"fmt"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// Kind is the kind of a record.
type Kind string

// The kinds of records, in the order in which they are written.
const (
	// Accepted: the agent has accepted the attempt and may start it.
	Accepted Kind = "accepted"
	// Dropped: an earlier agent accepted the attempt and never started it. It is treated as
	// if it had not been dispatched.
	Dropped Kind = "dropped"
	// Started: a process runs.
	Started Kind = "started"
	// Adopted: a later agent has taken over the attempt.
	Adopted Kind = "adopted"
	// Ended: the attempt has ended. It is the only record of a rejected attempt.
	Ended Kind = "ended"
	// Acked: the server has acknowledged the report of the end.
	Acked Kind = "acked"
)

// mustSync reports whether a record must be on the disk before the agent acts on it.
func (k Kind) mustSync() bool { return k == Accepted || k == Adopted || k == Ended }

// Record is one line of the journal.
type Record struct {
	Kind    Kind      `json:"kind"`
	UID     string    `json:"uid"`
	Attempt int32     `json:"attempt"`
	At      time.Time `json:"at"`

	Task       *wire.Task     `json:"task,omitempty"`       // of Accepted
	Dispatched *DispatchStamp `json:"dispatched,omitempty"` // of Accepted
	BootID     string         `json:"bootId,omitempty"`     // of Accepted: a run ends with its boot
	Process    *Process       `json:"process,omitempty"`    // of Started
	Status     *wire.Status   `json:"status,omitempty"`     // of Ended: the report

	n uint64 // NUMBER of the line
}

// DispatchStamp is when the server sent the dispatch (wire.Dispatch).
type DispatchStamp struct {
	RobotUID string `json:"robotUID"`
	Epoch    uint64 `json:"epoch"`
}

// Process identifies a process uniquely, also after its exit and after a reboot.
type Process struct {
	PID int `json:"pid"`
	// StartTicks is the start time in clock ticks since boot.
	StartTicks uint64 `json:"startTicks"`
	BootID     string `json:"bootId"`
}

// encodedRecord is a record with its JSON.
type encodedRecord struct {
	Record
	payload []byte
}

func encodeRecords(recs []Record) ([]encodedRecord, error) {
	all := make([]encodedRecord, len(recs))
	for i, r := range recs {
		payload, err := json.Marshal(r)
		if err != nil {
			return nil, fmt.Errorf("encode journal record: %w", err)
		}
		if len(payload) > maxPayload {
			return nil, fmt.Errorf("journal record of %d bytes is larger than %d", len(payload), maxPayload)
		}
		all[i] = encodedRecord{Record: r, payload: payload}
	}
	return all, nil
}
