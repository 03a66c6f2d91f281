package logship

import (
	"math"
	"time"

	"k8s4r.io/k8s4r/internal/seglog"
	"k8s4r.io/k8s4r/internal/wire"
)

// follower is where the sending of one log stands.
type follower struct {
	Attempt
	log seglog.Reader

	wd       int32 // of the watch; negative: none, it is looked at now and then
	waiting  bool  // for its turn
	ended    bool  // the attempt
	unwanted bool  // by the server
	gone     bool  // nobody follows it any more
	unread   bool  // the last try to read it failed

	known  bool          // what the server wants; else it is asked first
	next   int64         // offset of the next byte to send
	n      uint64        // of the last message
	heard  uint64        // greatest N of an answer
	has    int64         // its offset
	flight []piece       // sent and not answered, in the order of N
	stage  uint64        // rises when next goes back
	due    time.Time     // when what is in flight has waited too long
	pause  time.Duration // before what is in flight is sent again
}

// piece is one message on its way.
type piece struct {
	n    uint64
	end  int64
	size int // bytes that it takes of the window
	last bool
}

// newFollower begins with a question, unless there is nothing that an agent
// before this one could have sent. Messages are numbered on from the clock, so
// that a late answer to that agent is older than all of them.
func newFollower(a Attempt, dir string, now time.Time, pause time.Duration) *follower {
	f := &follower{Attempt: a, log: seglog.Reader{Dir: dir}, wd: noWatch, n: uint64(now.UnixMicro()), pause: pause}
	f.heard, f.has = f.n, math.MaxInt64
	size, err := f.log.Size()
	f.known = err == nil && size == 0
	return f
}

// acked takes in an answer, and returns how many bytes are no longer on the way.
func (f *follower) acked(a wire.LogAck, now time.Time, first time.Duration) (freed int) {
	if a.N < f.heard || a.N == f.heard && a.Offset <= f.has || a.N > f.n {
		return 0 // older than another, or to somebody else
	}
	f.heard, f.has, f.pause, f.due = a.N, a.Offset, first, now.Add(first)
	lost := false
	for len(f.flight) > 0 && f.flight[0].n <= a.N {
		p := f.flight[0]
		f.flight = f.flight[1:]
		freed += p.size
		lost = lost || p.end > a.Offset || p.last && !a.Done
	}
	if lost {
		freed += f.rewind()
		f.next = a.Offset
	}
	f.next, f.known = max(f.next, a.Offset), true
	return freed
}

// rewind takes back all that is on the way: nobody knows what became of it. The
// server is asked what it has before it gets any of it again.
func (f *follower) rewind() (freed int) {
	for _, p := range f.flight {
		freed += p.size
	}
	if len(f.flight) > 0 {
		f.known = false
	}
	f.flight = nil
	f.stage++
	return freed
}

// launched notes a message on its way.
func (f *follower) launched(p piece, now time.Time) {
	if len(f.flight) == 0 {
		f.due = now.Add(f.pause)
	}
	f.flight = append(f.flight, p)
	f.next = p.end
}

// overdue takes back what has waited too long for its answer, and has the next
// message wait longer.
func (f *follower) overdue(now time.Time) (freed int, late bool) {
	if len(f.flight) == 0 || f.due.After(now) {
		return 0, false
	}
	f.pause = min(2*f.pause, wire.RepeatWithin)
	return f.rewind(), true
}

// inFlight is the bytes on the way.
func (f *follower) inFlight() (n int) {
	for _, p := range f.flight {
		n += p.size
	}
	return n
}

// closing tells whether the end has been said and not been answered.
func (f *follower) closing() bool {
	n := len(f.flight)
	return n > 0 && f.flight[n-1].last
}
