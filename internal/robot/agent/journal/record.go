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
	// Run: the agent is about to start a run. Attempts of agents that do not restart tasks have none of
	// these records. Such agents skip the kinds that they do not know: they end an attempt with a later
	// run as if its shim had been killed.
	Run Kind = "run"
	// Started: a process runs.
	Started Kind = "started"
	// RunEnded: a run has ended, and another one follows.
	RunEnded Kind = "run-ended"
	// NoRun: the attempt starts no further run, because the server asked to stop or pause it or the agent
	// stops. With an empty reason it may again.
	NoRun Kind = "no-run"
	// Adopted: a later agent has taken over the attempt.
	Adopted Kind = "adopted"
	// Ended: the attempt has ended. It is the only record of a rejected attempt.
	Ended Kind = "ended"
	// Acked: the server has acknowledged the report of the end.
	Acked Kind = "acked"
)

// mustSync reports whether a record must be on the disk before the agent acts on it.
func (k Kind) mustSync() bool {
	switch k {
	case Accepted, Adopted, Run, RunEnded, NoRun, Ended:
		return true
	case Dropped, Started, Acked: // without them something is done twice that does no harm
	}
	return false
}

// Record is one line of the journal.
type Record struct {
	Kind    Kind      `json:"kind"`
	UID     string    `json:"uid"`
	Attempt int32     `json:"attempt"`
	At      time.Time `json:"at"`

	Task       *wire.Task     `json:"task,omitempty"`       // of Accepted
	Dispatched *DispatchStamp `json:"dispatched,omitempty"` // of Accepted
	BootID     string         `json:"bootId,omitempty"`     // of Accepted, Run and RunEnded: a run ends with its boot
	Process    *Process       `json:"process,omitempty"`    // of Started
	// Status is the report of Ended. Of RunEnded it is how the run ended, and its Runs are those that
	// have ended.
	Status *wire.Status `json:"status,omitempty"`

	Run int64 `json:"run,omitempty"` // of Run
	// Attributes of the robot, of the first Run and after a change.
	Attributes *wire.RobotAttributes `json:"attributes,omitempty"`
	Restart    *Restart              `json:"restart,omitempty"` // of RunEnded
	Reason     string                `json:"reason,omitempty"`  // of NoRun

	n uint64 // NUMBER of the line
}

// DispatchStamp is when the server sent the dispatch (wire.Dispatch).
type DispatchStamp struct {
	RobotUID string `json:"robotUID"`
	Epoch    uint64 `json:"epoch"`
}

// Restart is the restart after a run. All times are relative to the end of the run, because the robot's
// clock may be set, and another boot counts from zero.
type Restart struct {
	// EndedSinceBoot is when the run ended, by CLOCK_BOOTTIME. It is At of the record by the clock.
	EndedSinceBoot time.Duration `json:"endedSinceBoot"`
	// Wait is the time between the end and the next start.
	Wait time.Duration `json:"wait"`
	// Restarts are those of the current interval, with this one, and Age is how long before the end the
	// interval began.
	Restarts int32         `json:"restarts"`
	Age      time.Duration `json:"age"`
	// EndsWithContact is set if the restart is only for a robot without contact.
	EndsWithContact bool `json:"endsWithContact,omitempty"`
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
