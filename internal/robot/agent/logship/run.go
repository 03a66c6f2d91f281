package logship

import (
	"context"
	"time"

	"k8s4r.io/k8s4r/internal/seglog"
	"k8s4r.io/k8s4r/internal/wire"
)

const (
	// pieceSize is how much of one log is sent at a time. It must hold a record.
	pieceSize = 32 << 10
	// idle is how long the goroutine sleeps when nothing is due.
	idle = time.Hour
)

// Run sends logs until ctx ends. It runs once.
func (s *Shipper) Run(ctx context.Context) {
	defer s.watch.close()
	defer context.AfterFunc(ctx, s.watch.ring)()
	for ctx.Err() == nil {
		s.sendRound(ctx)
		s.tellDone()
		grown, all := s.watch.sleep(s.now().Add(s.wait()))
		if len(grown) > 0 {
			// While nobody reads what inotify has to say, it says each thing once.
			time.Sleep(s.cfg.Gather)
		}
		s.noticed(grown, all)
	}
}

// noticed gives a turn to the logs that have grown, and takes back what has
// waited too long.
func (s *Shipper) noticed(grown []*follower, all bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range grown {
		s.await(f)
	}
	now := s.now()
	for _, f := range s.logs {
		freed, late := f.overdue(now)
		s.sent -= freed
		if late || all || f.unread || f.wd < 0 && !f.ended {
			s.await(f)
		}
	}
}

// wait is how long to sleep.
func (s *Shipper) wait() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	wait := idle
	switch {
	case !s.up:
		return wait
	case len(s.turns) > 0 && s.open():
		return 0
	}
	now := s.now()
	for _, f := range s.logs {
		if f.unread || f.wd < 0 && !f.ended && !f.unwanted {
			wait = min(wait, lookEvery)
		}
		if len(f.flight) > 0 {
			wait = min(wait, f.due.Sub(now))
		}
	}
	return max(wait, 0)
}

// sendRound gives a turn to each log that waits for one, as far as the window
// allows. Those that have grown meanwhile come into the next round.
func (s *Shipper) sendRound(ctx context.Context) {
	for range s.waiting() {
		t, ok := s.take()
		if !ok {
			return
		}
		var c seglog.Chunk
		if !t.question {
			var err error
			if c, err = t.f.log.ReadAt(t.at, s.buf); err != nil {
				s.unread(t.f, err)
				continue
			}
		}
		if l, ok := s.launch(t, c); ok {
			s.pack.Pack(&l, c.Data)
			// One that is not sent is one that was lost on the way.
			_ = s.cfg.Publish(ctx, t.f.UID, l)
		}
	}
}

// waiting is the number of logs that wait for their turn.
func (s *Shipper) waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.turns)
}

// open tells whether something may be sent.
func (s *Shipper) open() bool { return s.up && s.sent+pieceSize <= s.cfg.Window }

// unread has a log looked at again later that could not be read.
func (s *Shipper) unread(f *follower, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f.unread = true
	s.cfg.Log.Warn("cannot read a log", "task", f.UID, "attempt", f.Attempt.Attempt, "error", err)
}

// turn is what a log may do now: send from an offset on, or ask.
type turn struct {
	f        *follower
	question bool
	at       int64
	stage    uint64
	// ended is from before the log is read: what is written until then is read.
	ended bool
}

// take picks the next log that may send something.
func (s *Shipper) take() (t turn, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range len(s.turns) {
		if !s.open() {
			return turn{}, false
		}
		f := s.turns[0]
		s.turns = s.turns[1:]
		f.waiting, f.unread = false, false
		switch {
		case f.gone || f.unwanted || f.closing():
		case f.known && f.inFlight()+pieceSize > s.share(): // an answer brings its turn
		case f.known || len(f.flight) == 0:
			return turn{f: f, question: !f.known, at: f.next, stage: f.stage, ended: f.ended}, true
		}
	}
	return turn{}, false
}

// share is how much of the window one log may take, so that a flood leaves room
// for the others.
func (s *Shipper) share() int { return max(s.cfg.Window*3/4, pieceSize) }

// launch makes a message of what was read, unless the log has been taken back
// meanwhile.
func (s *Shipper) launch(t turn, c seglog.Chunk) (l wire.Logs, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := t.f
	if f.gone || f.stage != t.stage {
		return l, false
	}
	l = wire.Logs{Attempt: f.Attempt.Attempt, Offset: t.at}
	if !t.question {
		l.Offset, l.Lost, l.Last = c.Offset, c.Offset-t.at, t.ended && !c.More
		if len(c.Data) == 0 && !l.Last {
			return l, false
		}
	}
	f.n++
	l.N = f.n
	f.launched(piece{n: f.n, end: l.Offset + int64(len(c.Data)), size: len(c.Data), last: l.Last}, s.now())
	s.sent += len(c.Data)
	if c.More {
		s.await(f)
	}
	return l, true
}

// tellDone tells of the logs that the server wants no more of.
func (s *Shipper) tellDone() {
	s.mu.Lock()
	done := s.done
	s.done = nil
	s.mu.Unlock()
	for _, a := range done {
		s.cfg.Done(a)
	}
}
