package journal

import (
	"cmp"
	"slices"
	"time"

	"k8s4r.io/k8s4r/internal/wire"
)

// Entry is what the records about one attempt add up to.
type Entry struct {
	UID     string
	Attempt int32
	// AcceptedAt is zero for an attempt that was turned down at once.
	AcceptedAt time.Time
	Task       *wire.Task   // nil once it has ended: nobody will run it again
	Said       *Stamp       // when the server said so; nil: not known
	BootID     string       // of when it was accepted
	Adoptions  uint64       // how many agents have found it as one before left it
	Process    *Process     // nil: not started, or not known
	Status     *wire.Status // the terminal report; nil: not ended
	AckedAt    time.Time    // zero: the server has not written it down
}

// Ended tells whether the attempt is over.
func (e Entry) Ended() bool { return e.Status != nil }

// Acked tells whether the server has written the end down.
func (e Entry) Acked() bool { return !e.AckedAt.IsZero() }

// index holds the entries by the task's UID and the attempt.
type index map[string]map[int32]*Entry

// apply takes in a record.
func (x index) apply(r Record) {
	e := x.at(r.UID, r.Attempt)
	switch r.Kind {
	case Accepted:
		e.AcceptedAt, e.Task, e.Said, e.BootID = r.At, r.Task, r.Said, r.BootID
	case Dropped:
		x.drop(e)
	case Adopted:
		e.Adoptions++
	case Started:
		e.Process = r.Process
	case Ended:
		e.Status, e.Task, e.Process, e.Said, e.Adoptions = r.Status, nil, nil, nil, 0
	case Acked:
		e.AckedAt = r.At
	}
}

func (x index) at(uid string, attempt int32) *Entry {
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

func (x index) latest(uid string) (Entry, bool) {
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

func (x index) entries() []Entry {
	var all []Entry
	for _, attempts := range x {
		for _, e := range attempts {
			all = append(all, *e)
		}
	}
	return all
}

// forget drops the acked entries that are old, or more than the journal keeps,
// and returns them.
func (x index) forget(now time.Time) []Entry {
	acked := slices.DeleteFunc(x.entries(), func(e Entry) bool { return !e.Acked() })
	slices.SortFunc(acked, func(a, b Entry) int {
		return cmp.Or(b.AckedAt.Compare(a.AckedAt), cmp.Compare(a.UID, b.UID), cmp.Compare(a.Attempt, b.Attempt))
	})
	keep := min(len(acked), MaxAcked)
	for keep > 0 && now.Sub(acked[keep-1].AckedAt) > KeepAcked {
		keep--
	}
	for _, e := range acked[keep:] {
		x.drop(&e)
	}
	return acked[keep:]
}

func (x index) drop(e *Entry) {
	delete(x[e.UID], e.Attempt)
	if len(x[e.UID]) == 0 {
		delete(x, e.UID)
	}
}

// records writes an entry anew, as briefly as it can be said.
func (e Entry) records() []Record {
	var all []Record
	add := func(r Record) {
		r.UID, r.Attempt = e.UID, e.Attempt
		all = append(all, r)
	}
	if !e.AcceptedAt.IsZero() {
		add(Record{Kind: Accepted, At: e.AcceptedAt, Task: e.Task, Said: e.Said, BootID: e.BootID})
	}
	for range e.Adoptions {
		add(Record{Kind: Adopted})
	}
	if e.Process != nil {
		add(Record{Kind: Started, Process: e.Process})
	}
	if e.Status != nil {
		add(Record{Kind: Ended, Status: e.Status})
	}
	if e.Acked() {
		add(Record{Kind: Acked, At: e.AckedAt})
	}
	return all
}
