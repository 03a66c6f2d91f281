package broker

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

// Refusal is something that was not let through.
type Refusal struct {
	// Name of who tried: a robot id or "k8s4r-server".
	Name string
	// What was tried: "connect", "publish", "subscribe" or "will".
	What string
	// Topic or filter; for "connect" the client id.
	Topic string
}

// Attempt is a kind of refusal, for counting.
type Attempt struct {
	What   string // as in Refusal
	Reason string // "address", "handshake", "malformed", "identity", "client-id", "topic" or "retained"
}

// Stats are what the broker knows of itself.
type Stats struct {
	Connections int // open now, on all listeners
	Sessions    int // connected or not
	Retained    int // messages
	// Refused counts since the start what was not let through, Slowed the messages
	// of robots that had to wait because they sent too many, and Dropped those that
	// a client did not take in time.
	Refused map[Attempt]uint64
	Slowed  uint64
	Dropped uint64
}

const (
	// sayAgain bounds how often one name is reported.
	sayAgain = time.Minute
	// maxRemembered bounds the names that were reported lately.
	maxRemembered = 16 << 10
)

// refusals counts what was refused, and reports who tried.
type refusals struct {
	tell    func(Refusal) // nil: nobody
	now     func() time.Time
	slowed  atomic.Uint64
	dropped atomic.Uint64

	mu    sync.Mutex
	count map[Attempt]uint64
	said  map[string]time.Time // by name
}

// add counts a refusal, and reports it unless nobody is to blame, or the one
// that is was reported within the minute.
func (r *refusals) add(reason string, what Refusal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count[Attempt{What: what.What, Reason: reason}]++
	now := r.now()
	if r.tell == nil || what.Name == "" || now.Sub(r.said[what.Name]) < sayAgain {
		return
	}
	if len(r.said) >= maxRemembered {
		maps.DeleteFunc(r.said, func(_ string, at time.Time) bool { return now.Sub(at) >= sayAgain })
	}
	if len(r.said) >= maxRemembered {
		return
	}
	r.said[what.Name] = now
	go r.tell(what) // who is told may take its time, the connection does not wait
}

func (r *refusals) counts() map[Attempt]uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.count)
}
