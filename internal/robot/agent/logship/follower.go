package logship

import (
	"math"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/logs/segment"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// follower is the progress of sending one log.
type follower struct {
	Attempt
	log segment.Reader

	wd         int32 // the watch; negative: none, the log is polled
	queued     bool  // in Shipper.turns
	ended      bool  // the attempt has ended
	rejected   bool  // the server does not store it
	dropped    bool  // it is no longer followed
	readFailed bool  // the last read failed

	nextKnown   bool          // if false, the server is queried first
	next        int64         // offset of the next byte to send
	lastSeq     uint64        // of the last message
	ackedSeq    uint64        // the greatest Seq of an acknowledgment
	ackedOffset int64         // its offset
	unacked     []piece       // sent and not acknowledged, in the order of seq
	rewinds     uint64        // number of times that next went back
	due         time.Time     // when the unacknowledged messages are sent again
	pause       time.Duration // before unacknowledged messages are sent again
}

// piece is one message that was sent.
type piece struct {
	seq  uint64
	end  int64
	size int // bytes that count for the window
	last bool
}

// newFollower returns a follower that queries the server first, unless the log is empty.
// Message numbers start at the clock, so that late acknowledgments for an earlier agent are
// older than all of them.
func newFollower(a Attempt, dir string, now time.Time, pause time.Duration) *follower {
	f := &follower{Attempt: a, log: segment.Reader{Dir: dir}, wd: noWatch, lastSeq: uint64(now.UnixMicro()), pause: pause}
	f.ackedSeq, f.ackedOffset = f.lastSeq, math.MaxInt64
	size, err := f.log.Size()
	f.nextKnown = err == nil && size == 0
	return f
}

// handleAck applies an acknowledgment, and returns the bytes that it frees in the window.
func (f *follower) handleAck(a wire.LogAck, now time.Time, first time.Duration) (freed int) {
	if a.Seq < f.ackedSeq || a.Seq == f.ackedSeq && a.Offset <= f.ackedOffset || a.Seq > f.lastSeq {
		return 0 // outdated, or for another agent
	}
	f.ackedSeq, f.ackedOffset, f.pause, f.due = a.Seq, a.Offset, first, now.Add(first)
	lost := false
	for len(f.unacked) > 0 && f.unacked[0].seq <= a.Seq {
		p := f.unacked[0]
		f.unacked = f.unacked[1:]
		freed += p.size
		lost = lost || p.end > a.Offset || p.last && !a.Done
	}
	if lost {
		freed += f.rewindUnacked()
		f.next = a.Offset
	}
	f.next, f.nextKnown = max(f.next, a.Offset), true
	return freed
}

// rewindUnacked drops all unacknowledged messages, which may or may not have arrived, and
// returns their bytes. The server is queried before they are sent again.
func (f *follower) rewindUnacked() (freed int) {
	for _, p := range f.unacked {
		freed += p.size
	}
	if len(f.unacked) > 0 {
		f.nextKnown = false
	}
	f.unacked = nil
	f.rewinds++
	return freed
}

// recordSent adds a message to the unacknowledged ones.
func (f *follower) recordSent(p piece, now time.Time) {
	if len(f.unacked) == 0 {
		f.due = now.Add(f.pause)
	}
	f.unacked = append(f.unacked, p)
	f.next = p.end
}

// rewindOverdue rewinds if the acknowledgment is overdue, and doubles the time that the next
// one may take.
func (f *follower) rewindOverdue(now time.Time) (freed int, late bool) {
	if len(f.unacked) == 0 || f.due.After(now) {
		return 0, false
	}
	f.pause = min(2*f.pause, wire.MaxRepeatInterval)
	return f.rewindUnacked(), true
}

// unackedBytes returns the bytes that are not acknowledged.
func (f *follower) unackedBytes() (n int) {
	for _, p := range f.unacked {
		n += p.size
	}
	return n
}

// isClosing reports whether the last message was sent and not acknowledged.
func (f *follower) isClosing() bool {
	n := len(f.unacked)
	return n > 0 && f.unacked[n-1].last
}
