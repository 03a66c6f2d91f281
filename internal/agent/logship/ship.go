package logship

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"k8s4r.io/k8s4r/internal/wire"
)

// Config says how logs are sent.
type Config struct {
	// Publish gives one message to the broker. It may fail; it must not call
	// back. The message is good until it returns.
	Publish func(ctx context.Context, taskUID string, l wire.Logs) error
	// Done is told of each attempt that has ended and whose log the server wants
	// no more of: its directory may go. It is not followed any longer. Done may
	// call back.
	Done func(Attempt)
	// Window bounds the bytes of all logs that are sent and not acknowledged.
	// Zero: 256 KiB.
	Window int
	// RepeatAfter is how long a piece waits for its acknowledgement before it is
	// sent again; the pause doubles up to wire.RepeatWithin. Zero: 2 s.
	RepeatAfter time.Duration
	// Gather is how long a line waits for others, so that a task which writes
	// many costs few messages. Zero: 20 ms.
	Gather time.Duration
	// Log tells what goes wrong. Nil: nobody is told.
	Log *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.Window <= 0 {
		c.Window = 256 << 10
	}
	if c.RepeatAfter <= 0 {
		c.RepeatAfter = 2 * time.Second
	}
	if c.Gather <= 0 {
		c.Gather = 20 * time.Millisecond
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// Attempt names one attempt of one task.
type Attempt struct {
	UID     string
	Attempt int32
}

// Shipper sends logs. Make it with New; Run does the work. Its other methods may
// be called from anywhere, before Run and after it too.
type Shipper struct {
	cfg   Config
	now   func() time.Time
	watch *watch
	pack  wire.LogPacker
	buf   []byte // of one piece

	mu    sync.Mutex
	up    bool
	logs  map[Attempt]*follower
	turns []*follower // who may have something to send, in the order of their turns
	sent  int         // bytes on the way, of all logs
	done  []Attempt   // to be told
}

// New prepares a shipper. It fails only when the process has no file descriptor
// left.
func New(c Config) (*Shipper, error) {
	w, err := newWatch()
	if err != nil {
		return nil, fmt.Errorf("follow logs: %w", err)
	}
	return &Shipper{cfg: c.withDefaults(), now: time.Now, watch: w, logs: map[Attempt]*follower{}, buf: make([]byte, pieceSize)}, nil
}

// Add follows the log of an attempt in dir, which is made if it is not there. A
// log that is followed already is not followed twice.
func (s *Shipper) Add(a Attempt, dir string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.logs[a] != nil {
		return
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		s.cfg.Log.Warn("cannot follow a log", "dir", dir, "error", err)
	}
	f := newFollower(a, dir, s.now(), s.cfg.RepeatAfter)
	s.logs[a] = f
	s.watch.add(f)
	s.ready(f)
}

// Ended says that nothing more is written to the log of an attempt.
func (s *Shipper) Ended(a Attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.logs[a]
	if f == nil || f.ended {
		return
	}
	f.ended = true
	s.watch.remove(f) // nothing more will come
	if f.unwanted {
		s.finish(f)
		return
	}
	s.ready(f)
}

// Forget stops following a log, sent or not. Done is not told.
func (s *Shipper) Forget(a Attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.logs[a]; f != nil {
		s.drop(f)
	}
}

// Acked takes in what the server says that it has.
func (s *Shipper) Acked(acks []wire.LogAck) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range acks {
		f := s.logs[Attempt{a.UID, a.Attempt}]
		if f == nil {
			continue
		}
		s.sent -= f.acked(a, s.now(), s.cfg.RepeatAfter)
		if a.Done {
			s.finish(f)
		} else {
			s.ready(f)
		}
	}
	s.watch.ring() // there is room for others
}

// Connected says whether messages can be sent. What was on the way when a
// connection broke is sent again on the next.
func (s *Shipper) Connected(up bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.up = up
	if !up {
		return
	}
	for _, f := range s.logs {
		s.sent -= f.rewind()
		s.ready(f)
	}
}

// Unsent is the number of logs that the server may not have all of.
func (s *Shipper) Unsent() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.logs)
}

// finish lets go of a log that the server wants no more of. The task may still
// run: then nobody will read what it writes.
func (s *Shipper) finish(f *follower) {
	if !f.ended {
		f.unwanted = true
		s.sent -= f.rewind()
		s.watch.remove(f)
		return
	}
	s.drop(f)
	s.done = append(s.done, f.Attempt)
	s.watch.ring()
}

func (s *Shipper) drop(f *follower) {
	s.sent -= f.rewind()
	s.watch.remove(f)
	f.gone = true
	delete(s.logs, f.Attempt)
}

// ready gives a log a turn, and wakes who takes it.
func (s *Shipper) ready(f *follower) {
	s.await(f)
	s.watch.ring()
}

// await puts a log behind the others that wait for their turn.
func (s *Shipper) await(f *follower) {
	if !f.waiting && !f.gone {
		f.waiting = true
		s.turns = append(s.turns, f)
	}
}
