package journal

import (
	"cmp"
	"slices"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// Entry is the state of one attempt according to its records.
type Entry struct {
	UID     string
	Attempt int32
	// AcceptedAt is zero for a rejected attempt.
	AcceptedAt time.Time
	Task       *wire.Task     // nil once it has ended: it is not started again
	Dispatched *DispatchStamp // nil: not known
	BootID     string         // when it was accepted, or its last run was about to start
	Adoptions  uint64         // how many agents have taken it over
	Process    *Process       // of the last run; nil: not started, or not known
	Status     *wire.Status   // the terminal report; nil: not ended
	AckedAt    time.Time      // zero: the server has not acknowledged the end

	// Run is the number of the last run that was about to start, from 1. If 0, an agent that does not
	// restart tasks accepted the attempt.
	Run        int64
	Attributes *wire.RobotAttributes // of the robot, for the next run; nil: the task uses none
	// LastEnd is the end of the last run after which another one follows. If nil, there is none.
	LastEnd *RunEnd
	// NoRunReason is why the attempt starts no further run. If empty, it may.
	NoRunReason string
}

// RunEnd is how a run ended, and the restart that follows.
type RunEnd struct {
	At      time.Time // by the robot's clock
	BootID  string
	Status  wire.Status
	Restart Restart
}

// LastBootID returns the boot in which the attempt was last active: waited for a run, or was about to start
// one.
func (e Entry) LastBootID() string {
	if e.AwaitsRun() {
		return e.LastEnd.BootID
	}
	return e.BootID
}

// AwaitsRun reports whether the next run has not been about to start. If there is a process, the record of
// its run is damaged.
func (e Entry) AwaitsRun() bool {
	return e.LastEnd != nil && e.LastEnd.Status.Run == e.Run && e.Process == nil
}

// HasEnded reports whether the attempt has ended.
func (e Entry) HasEnded() bool { return e.Status != nil }

// IsAcked reports whether the server has acknowledged the end.
func (e Entry) IsAcked() bool { return !e.AckedAt.IsZero() }

// index holds the entries by the task's UID and the attempt.
type index map[string]map[int32]*Entry

// applyRecord updates the entry of the record's attempt.
func (x index) applyRecord(r Record) {
	e := x.entryOf(r.UID, r.Attempt)
	switch r.Kind {
	case Accepted:
		e.AcceptedAt, e.Task, e.Dispatched, e.BootID = r.At, r.Task, r.Dispatched, r.BootID
	case Dropped:
		x.dropEntry(e)
	case Adopted:
		e.Adoptions++
	case Run:
		e.Run, e.BootID, e.Process = r.Run, r.BootID, nil
		if r.Attributes != nil {
			e.Attributes = r.Attributes
		}
	case Started:
		e.Process = r.Process
	case RunEnded:
		if r.Status != nil && r.Restart != nil {
			e.LastEnd, e.Process = &RunEnd{At: r.At, BootID: r.BootID, Status: *r.Status, Restart: *r.Restart}, nil
		}
	case NoRun:
		e.NoRunReason = r.Reason
	case Ended:
		e.Status, e.Task, e.Process, e.Dispatched, e.Adoptions = r.Status, nil, nil, nil, 0
		e.LastEnd, e.Attributes, e.NoRunReason = nil, nil, ""
	case Acked:
		e.AckedAt = r.At
	}
}

func (x index) entryOf(uid string, attempt int32) *Entry {
	attempts := x[uid]
	if attempts == nil {
		attempts = map[int32]*Entry{}
		x[uid] = attempts
	}
	e := attempts[attempt]
	if e == nil {
		e = &Entry{UID: uid, Attempt: attempt}
		attempts[attempt] = e
	}
	return e
}

func (x index) latestEntry(uid string) (Entry, bool) {
	var found *Entry
	for _, e := range x[uid] {
		if found == nil || e.Attempt > found.Attempt {
			found = e
		}
	}
	if found == nil {
		return Entry{}, false
	}
	return *found, true
}

func (x index) allEntries() []Entry {
	var all []Entry
	for _, attempts := range x {
		for _, e := range attempts {
			all = append(all, *e)
		}
	}
	return all
}

// forgetOld drops acknowledged entries that are older or more than the limits, and returns
// them.
func (x index) forgetOld(now time.Time) []Entry {
	acked := slices.DeleteFunc(x.allEntries(), func(e Entry) bool { return !e.IsAcked() })
	slices.SortFunc(acked, func(a, b Entry) int {
		return cmp.Or(b.AckedAt.Compare(a.AckedAt), cmp.Compare(a.UID, b.UID), cmp.Compare(a.Attempt, b.Attempt))
	})
	keep := min(len(acked), maxAcked)
	for keep > 0 && now.Sub(acked[keep-1].AckedAt) > keepAcked {
		keep--
	}
	for _, e := range acked[keep:] {
		x.dropEntry(&e)
	}
	return acked[keep:]
}

func (x index) dropEntry(e *Entry) {
	delete(x[e.UID], e.Attempt)
	if len(x[e.UID]) == 0 {
		delete(x, e.UID)
	}
}

// toRecords returns the fewest records that result in the entry.
func (e Entry) toRecords() []Record {
	var all []Record
	add := func(r Record) {
		r.UID, r.Attempt = e.UID, e.Attempt
		all = append(all, r)
	}
	if !e.AcceptedAt.IsZero() {
		add(Record{Kind: Accepted, At: e.AcceptedAt, Task: e.Task, Dispatched: e.Dispatched, BootID: e.BootID})
	}
	for range e.Adoptions {
		add(Record{Kind: Adopted})
	}
	if end := e.LastEnd; end != nil {
		add(Record{Kind: RunEnded, At: end.At, BootID: end.BootID, Status: &end.Status, Restart: &end.Restart})
	}
	if e.Run > 0 {
		add(Record{Kind: Run, Run: e.Run, BootID: e.BootID, Attributes: e.Attributes})
	}
	if e.Process != nil {
		add(Record{Kind: Started, Process: e.Process})
	}
	if e.NoRunReason != "" {
		add(Record{Kind: NoRun, Reason: e.NoRunReason})
	}
	if e.Status != nil {
		add(Record{Kind: Ended, Status: e.Status})
	}
	if e.IsAcked() {
		add(Record{Kind: Acked, At: e.AckedAt})
	}
	return all
}
