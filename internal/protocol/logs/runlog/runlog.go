// Package runlog is the format in which the runs of an attempt are stored on its robot and on the server,
// and sent between them. Only an attempt that its robot has restarted has such records.
//
// There is one Record in each line, as JSON. The numbers of runs rise from 1, so a run that was written twice
// counts once, and records that were lost are known by their numbers.
package runlog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// Record is one line.
type Record struct {
	wire.Run
	// ContactAt is set in a record that repeats the last run without contact: the robot has contact again
	// since then, by its clock.
	ContactAt *time.Time `json:"contactAt,omitempty"`
}

// The bounds of what a robot may write into a record.
const (
	maxLine   = 1 << 10
	maxReason = 100
)

// Append appends the record as a line to b.
func (r Record) Append(b []byte) ([]byte, error) {
	r.Reason = wire.TruncateText(r.Reason, maxReason)
	text, err := json.Marshal(r)
	if err != nil {
		return b, fmt.Errorf("encode the record of run %d: %w", r.Run.Run, err)
	}
	return append(append(b, text...), '\n'), nil
}

// Parse parses a line, with or without its newline. It returns false for other lines, such as those of the
// server.
func Parse(line []byte) (r Record, ok bool) {
	if len(line) > maxLine || !bytes.HasPrefix(line, []byte{'{'}) || json.Unmarshal(line, &r) != nil {
		return Record{}, false
	}
	r.Reason = wire.TruncateText(r.Reason, maxReason)
	return r, r.Run.Run >= 1 && r.Run.Run <= wire.MaxRunNumber && r.FinishedAt != nil
}
