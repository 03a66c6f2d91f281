package watch

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Limits bound the size of a Ring.
type Limits struct {
	// Events is the maximum number of events. Default 65,536.
	Events int
	// Bytes is the maximum size of their JSON. Default 64 MiB. The newest event is never evicted.
	Bytes int
}

const (
	defaultEvents = 1 << 16
	defaultBytes  = 64 << 20
	// perEvent estimates the memory of an event apart from its JSON, in bytes.
	perEvent = 1024
)

// overlap is how far back a reader of another instance starts. Kinds have separate watches and
// mass changes are collected, so that two instances may publish events in a different order; each
// event is delayed by less than half of overlap.
const overlap = time.Minute

// Ring holds the latest events for one writer and any number of readers. Slow readers delay
// neither the writer nor other readers.
//
// Events are linked, so that a reader advances without a lock. Waiting readers share one channel,
// which exists only while a reader waits.
type Ring struct {
	incarnation string
	limits      Limits
	now         func() time.Time

	mu     sync.Mutex // guards the fields below; held by the writer and by readers that look for their position
	oldest *node      // the oldest event that is held, or newest if none is
	newest *node
	held   int
	bytes  int
	// complete is a seq: a reader that knows an event with a greater seq knows all events that
	// were never held here. evicted is when the last of the evicted events was published; zero if
	// none was evicted.
	complete uint64
	evicted  time.Time
	// before is the seq of the previous instance's last event: a reader that received it last
	// knows all events that were never held here. It is zero if it is unknown or an event was
	// evicted.
	before uint64

	wakeMu sync.Mutex
	wake   chan struct{} // nil if no reader waits
}

// node is an event and a link to the next one. The link of an evicted node is cut, so that a slow
// reader retains one event instead of all later ones.
type node struct {
	event *Event
	next  atomic.Pointer[node]
}

// cut marks the link of an evicted node.
var cut = &node{}

// isDropped reports whether n marks a cut link, as opposed to the end of the list.
func (n *node) isDropped() bool { return n == cut }

// NewRing returns an empty ring. incarnation must be unique among all instances and contain no
// colon.
func NewRing(incarnation string, limits Limits) *Ring {
	limits.Events, limits.Bytes = cmp.Or(limits.Events, defaultEvents), cmp.Or(limits.Bytes, defaultBytes)
	start := &node{event: &Event{ID: incarnation + ":0:0"}}
	return &Ring{incarnation: incarnation, limits: limits, now: time.Now, oldest: start, newest: start}
}

// setStart sets the seq after which all events will be published. It must be called before the
// first Publish. A reader that has received an event after safe, or the event last as its last,
// has missed nothing. Existing readers get a Resync.
func (r *Ring) setStart(seq, safe, last uint64) {
	r.mu.Lock()
	r.complete, r.before = max(seq, safe), last
	early := r.newest
	start := &node{event: &Event{Seq: seq, ID: r.formatID(seq, 0)}}
	r.oldest, r.newest = start, start
	early.next.Store(cut)
	r.mu.Unlock()
	r.wakeAll()
}

func (r *Ring) formatID(seq, number uint64) string {
	return fmt.Sprintf("%s:%d:%d", r.incarnation, seq, number)
}

// Publish adds an event and sets its ID and JSON. It never waits for a reader.
func (r *Ring) Publish(e Event) error {
	body, err := e.encodeJSON()
	if err != nil {
		return fmt.Errorf("encode an event of %s %s/%s: %w", e.Kind, e.Namespace, e.Name, err)
	}
	r.mu.Lock()
	e.JSON, e.number, e.arrived = body, r.newest.event.number+1, r.now()
	e.ID = r.formatID(e.Seq, e.number)
	n := &node{event: &e}
	last := r.newest
	r.newest = n
	if r.held == 0 {
		r.oldest = n
	}
	r.held++
	r.bytes += eventSize(&e)
	last.next.Store(n)
	r.evictOldest()
	r.mu.Unlock()
	r.wakeAll()
	return nil
}

func eventSize(e *Event) int { return len(e.JSON) + perEvent }

func (r *Ring) evictOldest() {
	for r.held > 1 && (r.held > r.limits.Events || r.bytes > r.limits.Bytes) {
		n := r.oldest
		r.oldest = n.next.Load()
		r.held--
		r.bytes -= eventSize(n.event)
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

func (r *Ring) wakeChannel() <-chan struct{} {
	r.wakeMu.Lock()
	defer r.wakeMu.Unlock()
	if r.wake == nil {
		r.wake = make(chan struct{})
	}
	return r.wake
}

// Position returns the ID of the newest event, or the start of the stream if there is none.
func (r *Ring) Position() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.newest.event.ID
}

// lastUpTo returns the seq of the last published event whose seq is at most seq. Zero if it is
// unknown.
func (r *Ring) lastUpTo(seq uint64) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := r.before
	for n := r.firstNode(); n != nil; n = n.next.Load() {
		if n.event.Seq <= seq {
			last = n.event.Seq
		}
	}
	return last
}

// Since returns a reader of the events after the given ID. If id is empty, the reader starts with
// the next event.
//
// An ID of another instance leads to the first event that the other instance may not have
// published; some events are repeated. If events may be missing or the ID is invalid, the reader
// starts with a Resync.
func (r *Ring) Since(id string) *Reader {
	r.mu.Lock()
	defer r.mu.Unlock()
	if id == "" {
		return &Reader{ring: r, at: r.newest, told: r.newest.event.ID}
	}
	incarnation, seq, number, ok := parseID(id)
	var at *node
	switch {
	case !ok:
	case incarnation == r.incarnation:
		at = r.nodeAfter(number)
	default:
		at = r.nodeFrom(seq)
	}
	if at == nil {
		return &Reader{ring: r, at: r.newest, told: id, resync: true}
	}
	return &Reader{ring: r, at: at, told: id}
}

// nodeAfter returns the node with the given number, or one that links to the next. It returns nil
// if the next event is not held.
func (r *Ring) nodeAfter(number uint64) *node {
	first := r.firstNode()
	switch {
	case number == r.newest.event.number:
		return r.newest
	case number > r.newest.event.number || first == nil || number+1 < first.event.number:
		return nil
	case number+1 == first.event.number:
		return r.nodeBefore(first, r.complete)
	}
	for n := first; n != nil; n = n.next.Load() {
		if n.event.number == number {
			return n
		}
	}
	return nil
}

// nodeFrom returns a node before the first event that a reader of another instance at seq may not
// know. It returns nil if that event is not held.
func (r *Ring) nodeFrom(seq uint64) *node {
	if seq <= r.complete && (r.before == 0 || seq != r.before) {
		return nil
	}
	first := r.firstNode()
	if first == nil {
		return r.newest
	}
	var known time.Time // when the last event was published that the reader may know
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
	return r.nodeBefore(n, seq)
}

// firstNode returns the oldest event, or nil if none is held.
func (r *Ring) firstNode() *node {
	if r.held == 0 {
		return nil
	}
	return r.oldest
}

// nodeBefore returns the position before an event, for a reader that knows all events up to seq.
func (r *Ring) nodeBefore(to *node, seq uint64) *node {
	n := &node{event: &Event{Seq: seq, ID: r.formatID(seq, to.event.number-1), number: to.event.number - 1}}
	n.next.Store(to)
	return n
}

func parseID(id string) (incarnation string, seq, number uint64, ok bool) {
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
