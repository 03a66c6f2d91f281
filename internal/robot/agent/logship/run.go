package logship

import (
	"context"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/logs/segment"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

const (
	// pieceSize is the most bytes of one message. A record must fit.
	pieceSize = 32 << 10
	// idle is the longest sleep, when nothing is due.
	idle = time.Hour
)

// Run sends logs until ctx ends. It runs once.
func (s *Shipper) Run(ctx context.Context) {
	defer s.watch.closeWatch()
	defer context.AfterFunc(ctx, s.watch.wakeUp)()
	for ctx.Err() == nil {
		s.sendRound(ctx)
		s.notifyDone()
		grown, all := s.watch.waitForGrowth(s.now().Add(s.sleepTime()))
		if len(grown) > 0 {
			// Until the next read, inotify reports repeated writes only once.
			time.Sleep(s.cfg.Gather)
		}
		s.queueGrown(grown, all)
	}
}

// queueGrown queues the logs that have grown, and those whose unacknowledged messages are
// overdue.
func (s *Shipper) queueGrown(grown []*follower, all bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range grown {
		s.queueTurnLocked(f)
	}
	now := s.now()
	for _, f := range s.logs {
		freed, late := f.rewindOverdue(now)
		s.bytesInFlight -= freed
		if late || all || f.readFailed || f.wd < 0 && !f.ended {
			s.queueTurnLocked(f)
		}
	}
}

// sleepTime returns how long Run may sleep if no log grows.
func (s *Shipper) sleepTime() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	wait := idle
	switch {
	case !s.connected:
		return wait
	case len(s.turns) > 0 && s.canSendLocked():
		return 0
	}
	now := s.now()
	for _, f := range s.logs {
		if f.readFailed || f.wd < 0 && !f.ended && !f.rejected {
			wait = min(wait, pollInterval)
		}
		if len(f.unacked) > 0 {
			wait = min(wait, f.due.Sub(now))
		}
	}
	return max(wait, 0)
}

// sendRound serves each queued log once, as far as the window allows. Logs that grow
// meanwhile are served in the next round.
func (s *Shipper) sendRound(ctx context.Context) {
	for range s.queuedTurns() {
		t, ok := s.takeTurn()
		if !ok {
			return
		}
		var c segment.Chunk
		if !t.isQuery {
			var err error
			if c, err = t.f.log.ReadAt(t.at, s.buf); err != nil {
				s.markReadFailed(t.f, err)
				continue
			}
		}
		if l, ok := s.buildMessage(t, c); ok {
			s.pack.Pack(&l, c.Data)
			// If it fails, the message is overdue later, as if it were lost.
			_ = s.cfg.Publish(ctx, t.f.Attempt, l)
		}
	}
}

// queuedTurns returns the number of queued logs.
func (s *Shipper) queuedTurns() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.turns)
}

// canSendLocked reports whether the connection and the window allow to send a piece.
func (s *Shipper) canSendLocked() bool {
	return s.connected && s.bytesInFlight+pieceSize <= s.cfg.Window
}

// markUnread makes Run retry a log that could not be read.
func (s *Shipper) markReadFailed(f *follower, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f.readFailed = true
	s.cfg.Log.Warn("cannot read a log", "task", f.UID, "attempt", f.Attempt.Attempt, "error", err)
}

// turn is what to send of a log: a piece from an offset on, or a query.
type turn struct {
	f       *follower
	isQuery bool
	at      int64
	rewinds uint64
	// ended was read before the log, so that no write before the end is missed.
	ended bool
}

// takeTurn removes the next log that may send from the queue.
func (s *Shipper) takeTurn() (t turn, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range len(s.turns) {
		if !s.canSendLocked() {
			return turn{}, false
		}
		f := s.turns[0]
		s.turns = s.turns[1:]
		f.queued, f.readFailed = false, false
		switch {
		case f.dropped || f.rejected || f.isClosing() || f.OfRuns && !s.sendsRuns: // SetSendsRuns queues it
		case f.nextKnown && f.unackedBytes()+pieceSize > s.windowShare(): // its next acknowledgment queues it
		case f.nextKnown || len(f.unacked) == 0:
			return turn{f: f, isQuery: !f.nextKnown, at: f.next, rewinds: f.rewinds, ended: f.ended}, true
		}
	}
	return turn{}, false
}

// windowShare returns the part of the window that one log may use, so that a flood leaves
// room for others.
func (s *Shipper) windowShare() int { return max(s.cfg.Window*3/4, pieceSize) }

// buildMessage returns a message with what was read. It returns false if there is nothing to
// send, or the log was rewound or dropped meanwhile.
func (s *Shipper) buildMessage(t turn, c segment.Chunk) (l wire.Logs, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := t.f
	if f.dropped || f.rewinds != t.rewinds {
		return l, false
	}
	l = wire.Logs{Attempt: f.Attempt.Attempt, Offset: t.at}
	if !t.isQuery {
		l.Offset, l.Lost, l.Last = c.Offset, c.Offset-t.at, t.ended && !c.More
		if len(c.Data) == 0 && !l.Last {
			return l, false
		}
	}
	f.lastSeq++
	l.Seq = f.lastSeq
	f.recordSent(piece{seq: f.lastSeq, end: l.Offset + int64(len(c.Data)), size: len(c.Data), last: l.Last}, s.now())
	s.bytesInFlight += len(c.Data)
	if c.More {
		s.queueTurnLocked(f)
	}
	return l, true
}

// notifyDone calls Config.Done for the logs that are finished.
func (s *Shipper) notifyDone() {
	s.mu.Lock()
	done := s.done
	s.done = nil
	s.mu.Unlock()
	for _, a := range done {
		s.cfg.Done(a)
	}
}
