package events

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Limits bound what a Ring holds.
type Limits struct {
	// Events that are held at the most. Zero: 65,536.
	Events int
	// Bytes of their JSON at the most. Zero: 64 MiB. The newest event is held in any case.
	Bytes int
}

const (
	defaultEvents = 1 << 16
	defaultBytes  = 64 << 20
	// perEvent is about what an event takes beside its JSON.
	perEvent = 1024
)

// overlap is how far back a reader of another incarnation begins: kinds come in by watches of
// their own, mass changes are gathered, and what one incarnation told first may come later in
// another, each less than half of it after it was written.
const overlap = time.Minute

// Ring holds the last events. One writer publishes, any number of readers follow, each at its
// own pace: a reader costs the writer nothing, however slow it is, and no other reader.
//
// Events are linked, so that a reader goes from one to the next without a lock. Who waits for
// the next one waits on a channel that all share, and that exists only while somebody waits.
type Ring struct {
	incarnation string
	limits      Limits
	now         func() time.Time

	mu     sync.Mutex // the writer's, and of readers that look for their place
	oldest *node      // that is held, or newest when none is
	newest *node
	held   int
	bytes  int
	// complete: who knows an event with a greater seq knows all that was never held here. evicted
	// is when the last of those arrived that are not held any more. Zero: all are.
	complete uint64
	evicted  time.Time
	// before is the seq of an event of the incarnation before this one: who was told that as
	// the last knows all that was never held here. Zero: it is not known, or something was evicted.
	before uint64

	wakeMu sync.Mutex
	wake   chan struct{} // nil: nobody waits
}

// node is an event and the way to the next. Cut off, it leads nowhere, so that a reader that
// lags holds one event and not all that came since.
type node struct {
	event *Event
	next  atomic.Pointer[node]
}

// cut ends the way from an event that is not held any more.
var cut = &node{}

// dropped tells the end of the way from the place where the next event comes.
func (n *node) dropped() bool { return n == cut }

// NewRing is an empty ring. The incarnation tells its ids from those of every other one, and
// has no colon.
func NewRing(incarnation string, limits Limits) *Ring {
	limits.Events, limits.Bytes = cmp.Or(limits.Events, defaultEvents), cmp.Or(limits.Bytes, defaultBytes)
	start := &node{event: &Event{ID: incarnation + ":0:0"}}
	return &Ring{incarnation: incarnation, limits: limits, now: time.Now, oldest: start, newest: start}
}

// begin says, before anything is published, that all that happens after seq will be. Whoever was
// told of something after safe, or of what happened at last as the last, knows all before it.
// A reader that was there before is told to load its lists.
func (r *Ring) begin(seq, safe, last uint64) {
	r.mu.Lock()
	r.complete, r.before = max(seq, safe), last
	early := r.newest
	start := &node{event: &Event{Seq: seq, ID: r.id(seq, 0)}}
	r.oldest, r.newest = start, start
	early.next.Store(cut)
	r.mu.Unlock()
	r.wakeAll()
}

func (r *Ring) id(seq, number uint64) string {
	return fmt.Sprintf("%s:%d:%d", r.incarnation, seq, number)
}

// Publish adds an event. ID and JSON are set here. It never waits for a reader.
func (r *Ring) Publish(e Event) error {
	body, err := e.encode()
	if err != nil {
		return fmt.Errorf("encode an event of %s %s/%s: %w", e.Kind, e.Namespace, e.Name, err)
	}
	r.mu.Lock()
	e.JSON, e.number, e.arrived = body, r.newest.event.number+1, r.now()
	e.ID = r.id(e.Seq, e.number)
	n := &node{event: &e}
	last := r.newest
	r.newest = n
	if r.held == 0 {
		r.oldest = n
	}
	r.held++
	r.bytes += size(&e)
	last.next.Store(n)
	r.evict()
	r.mu.Unlock()
	r.wakeAll()
	return nil
}

func size(e *Event) int { return len(e.JSON) + perEvent }

func (r *Ring) evict() {
	for r.held > 1 && (r.held > r.limits.Events || r.bytes > r.limits.Bytes) {
		n := r.oldest
		r.oldest = n.next.Load()
		r.held--
		r.bytes -= size(n.event)
		r.complete, r.evicted, r.before = max(r.complete, n.event.Seq), n.event.arrived, 0
		n.next.Store(cut)
	}
}

func (r *Ring) wakeAll() {
	r.wakeMu.Lock()
	defer r.wakeMu.Unlock()
	if r.wake != nil {
		close(r.wake)
		r.wake = nil
	}
}

func (r *Ring) waker() <-chan struct{} {
	r.wakeMu.Lock()
	defer r.wakeMu.Unlock()
	if r.wake == nil {
		r.wake = make(chan struct{})
	}
	return r.wake
}

// Position is the ID of the newest event, or where there is none yet the start of the stream.
func (r *Ring) Position() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.newest.event.ID
}

// lastUpTo is the seq of the last event in the order of the stream that is not after seq.
// Zero: it is not known.
func (r *Ring) lastUpTo(seq uint64) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := r.before
	for n := r.first(); n != nil; n = n.next.Load() {
		if n.event.Seq <= seq {
			last = n.event.Seq
		}
	}
	return last
}

// Since is a reader of what follows the event with that id. Empty: of what comes from now on.
//
// An id of another incarnation leads to the first event that may not have been told there:
// some come twice. If something may be missing, and if the id is none, the first event is
// a Resync.
func (r *Ring) Since(id string) *Reader {
	r.mu.Lock()
	defer r.mu.Unlock()
	if id == "" {
		return &Reader{ring: r, at: r.newest, told: r.newest.event.ID}
	}
	incarnation, seq, number, ok := parse(id)
	var at *node
	switch {
	case !ok:
	case incarnation == r.incarnation:
		at = r.after(number)
	default:
		at = r.from(seq)
	}
	if at == nil {
		return &Reader{ring: r, at: r.newest, told: id, resync: true}
	}
	return &Reader{ring: r, at: at, told: id}
}

// after is the node of that number, or one that leads to the next. Nil: the next is not held.
func (r *Ring) after(number uint64) *node {
	first := r.first()
	switch {
	case number == r.newest.event.number:
		return r.newest
	case number > r.newest.event.number || first == nil || number+1 < first.event.number:
		return nil
	case number+1 == first.event.number:
		return r.lead(first, r.complete)
	}
	for n := first; n != nil; n = n.next.Load() {
		if n.event.number == number {
			return n
		}
	}
	return nil
}

// from leads to the first event that a reader may not know that was told everything up to
// seq, more or less. Nil: it is not held.
func (r *Ring) from(seq uint64) *node {
	if seq <= r.complete && (r.before == 0 || seq != r.before) {
		return nil
	}
	first := r.first()
	if first == nil {
		return r.newest
	}
	var known time.Time // when the last one came that the reader may have been told of
	for n := first; n != nil && n.event.Seq <= seq; n = n.next.Load() {
		known = n.event.arrived
	}
	begin := known.Add(-overlap)
	if !r.evicted.IsZero() && !r.evicted.Before(begin) {
		return nil
	}
	n := first
	for n.event.arrived.Before(begin) {
		n = n.next.Load()
	}
	return r.lead(n, seq)
}

// first is the oldest event. Nil: none is held.
func (r *Ring) first() *node {
	if r.held == 0 {
		return nil
	}
	return r.oldest
}

// lead is the place before an event, of a reader that knows all up to seq.
func (r *Ring) lead(to *node, seq uint64) *node {
	n := &node{event: &Event{Seq: seq, ID: r.id(seq, to.event.number-1), number: to.event.number - 1}}
	n.next.Store(to)
	return n
}

func parse(id string) (incarnation string, seq, number uint64, ok bool) {
	part := strings.Split(id, ":")
	if len(part) != 3 {
		return "", 0, 0, false
	}
	seq, err := strconv.ParseUint(part[1], 10, 64)
	if err != nil {
		return "", 0, 0, false
	}
	number, err = strconv.ParseUint(part[2], 10, 64)
	return part[0], seq, number, err == nil
}
