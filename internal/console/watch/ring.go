package watch

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// Limits bound the size of a Ring.
type Limits struct {
	// Events is the maximum number of events. Default 65,536.
	Events int
	// Bytes is the maximum size of their JSON. Default 16 MiB. The newest event is never evicted.
	Bytes int
}

const (
	defaultEvents = 1 << 16
	defaultBytes  = 16 << 20
	// perEvent estimates the memory of an event apart from its JSON, in bytes.
	perEvent = 1024
)

// Ring holds the latest events for one writer and any number of readers. Slow readers delay
// neither the writer nor other readers.
//
// Events are linked, so that a reader advances without a lock. Waiting readers share one channel,
// which exists only while a reader waits.
type Ring struct {
	instanceID string
	limits     Limits

	mu     sync.Mutex // guards the fields below; held by the writer and by readers that look for their position
	oldest *node      // the oldest event that is held, or newest if none is
	newest *node
	held   int
	bytes  int

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

// isCut reports whether n marks a cut link, as opposed to the end of the list.
func (n *node) isCut() bool { return n == cut }

// NewRing returns an empty ring. instanceID is part of the events' IDs. It must be unique among all
// instances and contain no colon.
func NewRing(instanceID string, limits Limits) *Ring {
	limits.Events, limits.Bytes = cmp.Or(limits.Events, defaultEvents), cmp.Or(limits.Bytes, defaultBytes)
	r := &Ring{instanceID: instanceID, limits: limits}
	r.newest = &node{event: &Event{ID: r.formatID(0)}}
	r.oldest = r.newest
	return r
}

func (r *Ring) formatID(number uint64) string {
	return r.instanceID + ":" + strconv.FormatUint(number, 10)
}

// Publish adds an event and sets its ID and JSON. It never waits for a reader.
func (r *Ring) Publish(e Event) error {
	body, err := e.encodeJSON()
	if err != nil {
		return fmt.Errorf("encode an event of %s %s/%s: %w", e.Kind, e.Namespace, e.Name, err)
	}
	r.mu.Lock()
	e.JSON, e.number = body, r.newest.event.number+1
	e.ID = r.formatID(e.number)
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

// Since returns a reader of the events after the given ID. If id is empty, the reader starts with
// the next event. If id is invalid, of another instance, or so old that later events were evicted,
// the reader starts with a Resync.
func (r *Ring) Since(id string) *Reader {
	r.mu.Lock()
	defer r.mu.Unlock()
	if id == "" {
		return &Reader{ring: r, at: r.newest, position: r.newest.event.ID}
	}
	if number, ok := r.parseID(id); ok {
		if at := r.nodeAfter(number); at != nil {
			return &Reader{ring: r, at: at, position: id}
		}
	}
	return &Reader{ring: r, at: r.newest, position: id, resync: true}
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
		return r.nodeBefore(first, 0)
	}
	for n := first; n != nil; n = n.next.Load() {
		if n.event.number == number {
			return n
		}
	}
	return nil
}

// firstNode returns the oldest event, or nil if none is held.
func (r *Ring) firstNode() *node {
	if r.held == 0 {
		return nil
	}
	return r.oldest
}

// nodeBefore returns the position before an event. seq is of the event before it, or zero.
func (r *Ring) nodeBefore(to *node, seq uint64) *node {
	number := to.event.number - 1
	n := &node{event: &Event{Seq: seq, ID: r.formatID(number), number: number}}
	n.next.Store(to)
	return n
}

// parseID returns the number of an event. It returns false if id is invalid or of another instance.
func (r *Ring) parseID(id string) (number uint64, ok bool) {
	instanceID, text, ok := strings.Cut(id, ":")
	if !ok || instanceID != r.instanceID {
		return 0, false
	}
	number, err := strconv.ParseUint(text, 10, 64)
	return number, err == nil
}
