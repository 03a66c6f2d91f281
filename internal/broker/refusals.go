package broker

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"k8s4r.io/k8s4r/internal/platform/limits"
)

// Refusal is an action that was denied.
type Refusal struct {
	// Name of the client: a robot ID or "k8s4r-server"; empty: not authenticated, or not to be
	// reported.
	Name string
	// Action was tried: "connect", "publish", "subscribe" or "will".
	Action string
	// Topic or filter; for "connect" the client id.
	Topic string
}

// RefusalKind groups refusals for counting.
type RefusalKind struct {
	Action string // as in Refusal
	Reason string // "address", "handshake", "malformed", "identity", "client-id", "topic" or "retained"
}

// Stats are counters of the broker.
type Stats struct {
	Connections int // open now, on all listeners
	Sessions    int // connected or not
	Retained    int // messages
	// Refused, Throttled and Dropped count since the start: refused actions, messages of
	// robots that were delayed by the rate limit, and messages that were dropped because
	// the queue of their receiver was full.
	Refused   map[RefusalKind]uint64
	Throttled uint64
	Dropped   uint64
	// Postponed counts connections of robots that were asked to come back at their turn.
	Postponed uint64
}

const (
	// reportInterval is the minimum time between two reports about one name.
	reportInterval = time.Minute
	// throttledInterval is the minimum time between two reports that a client is delayed.
	throttledInterval = 10 * time.Minute
	// maxReportedNames bounds the names in memory.
	maxReportedNames = 16 << 10
)

// refusals counts denied actions, and reports those of known clients.
type refusals struct {
	report    func(Refusal) // nil: no reports
	now       func() time.Time
	throttled atomic.Uint64
	dropped   atomic.Uint64

	reports limits.Interval // by name

	reportThrottled func(name string) // nil: no reports
	throttledNames  limits.Interval

	mu     sync.Mutex
	counts map[RefusalKind]uint64
}

// record counts a refusal, and reports it unless the client is unknown or was reported
// within the last minute.
func (r *refusals) record(reason string, what Refusal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[RefusalKind{Action: what.Action, Reason: reason}]++
	if r.report == nil || what.Name == "" || !r.reports.Allow(what.Name, r.now()) {
		return
	}
	go r.report(what) // the callback may block, the connection must not
}

// recordThrottled counts a delayed message, and reports its client, unless it was reported within
// throttledInterval.
func (r *refusals) recordThrottled(name string) {
	r.throttled.Add(1)
	if r.reportThrottled != nil && r.throttledNames.Allow(name, r.now()) {
		go r.reportThrottled(name) // the callback may block, the connection must not
	}
}

func (r *refusals) snapshot() map[RefusalKind]uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.counts)
}
