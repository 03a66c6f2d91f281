package logship

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// Config configures a Shipper.
type Config struct {
	// Publish sends one message. It may fail, must not call the Shipper, and must not keep
	// the message.
	Publish func(ctx context.Context, a Attempt, l wire.Logs) error
	// Done is called for each log whose attempt has ended and that the server has stored or
	// rejected. The log is not followed any more, so its directory can be deleted. Done
	// may call the Shipper.
	Done func(Attempt)
	// Window limits the bytes of all logs that are sent and not acknowledged. If zero,
	// 256 KiB.
	Window int
	// RepeatAfter is how long a piece waits for its acknowledgment before it is sent again.
	// The time doubles up to wire.MaxRepeatInterval. If zero, 2 s.
	RepeatAfter time.Duration
	// Gather is how long a line waits for more lines, so that many lines need few messages.
	// If zero, 20 ms.
	Gather time.Duration
	// Log gets warnings. If nil, they are dropped.
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

// Attempt identifies a log: of one attempt of one task.
type Attempt struct {
	UID     string
	Attempt int32
	// OfRuns is set for the records of its runs. Else it is its output.
	OfRuns bool
}

// Shipper sends logs. Run does the work; the other methods are safe for concurrent use, also
// before and after Run.
type Shipper struct {
	cfg   Config
	now   func() time.Time
	watch *logWatcher
	pack  wire.LogPacker
	buf   []byte // of one piece

	mu            sync.Mutex
	connected     bool
	sendsRuns     bool // the server of this connection stores the records of runs
	logs          map[Attempt]*follower
	turns         []*follower // logs that may have something to send, in the order of their turns
	bytesInFlight int         // of all logs
	done          []Attempt   // not notified yet
}

// New returns a Shipper. It fails only if the process has no file descriptor left.
func New(c Config) (*Shipper, error) {
	w, err := newLogWatcher()
	if err != nil {
		return nil, fmt.Errorf("follow logs: %w", err)
	}
	return &Shipper{cfg: c.withDefaults(), now: time.Now, watch: w, logs: map[Attempt]*follower{}, buf: make([]byte, pieceSize)}, nil
}

// AddLog follows the log of an attempt in dir, which is created if it does not exist. A second
// call for the same attempt has no effect.
func (s *Shipper) AddLog(a Attempt, dir string) {
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
	s.watch.addLog(f)
	s.wakeTurnLocked(f)
}

// EndLog records that the log of an attempt is complete.
func (s *Shipper) EndLog(a Attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.logs[a]
	if f == nil || f.ended {
		return
	}
	f.ended = true
	s.watch.removeLog(f) // nothing more will come
	if f.rejected {
		s.finishLogLocked(f)
		return
	}
	s.wakeTurnLocked(f)
}

// ForgetLog stops following a log, even if it was not sent. Config.Done is not called.
func (s *Shipper) ForgetLog(a Attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.logs[a]; f != nil {
		s.dropLogLocked(f)
	}
}

// HandleAcks applies acknowledgments of the server: of the records of runs, or of output.
func (s *Shipper) HandleAcks(acks []wire.LogAck, ofRuns bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range acks {
		f := s.logs[Attempt{UID: a.UID, Attempt: a.Attempt, OfRuns: ofRuns}]
		if f == nil {
			continue
		}
		s.bytesInFlight -= f.handleAck(a, s.now(), s.cfg.RepeatAfter)
		if a.Done {
			s.finishLogLocked(f)
		} else {
			s.wakeTurnLocked(f)
		}
	}
	s.watch.wakeUp() // the window has room for other logs
}

// SetConnected sets whether messages can be sent. Unacknowledged messages are sent again over
// a new connection.
func (s *Shipper) SetConnected(up bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.connected, s.sendsRuns = up, false // the next server may be an earlier version
	if !up {
		return
	}
	for _, f := range s.logs {
		s.bytesInFlight -= f.rewindUnacked()
		s.wakeTurnLocked(f)
	}
}

// SetSendsRuns sets whether the server of this connection stores the records of runs. Until it is set,
// they wait.
func (s *Shipper) SetSendsRuns(sends bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sendsRuns = sends; !sends {
		return
	}
	for _, f := range s.logs {
		if f.OfRuns {
			s.wakeTurnLocked(f)
		}
	}
}

// unsentCount returns the number of logs of which the server may not have everything.
func (s *Shipper) unsentCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.logs)
}

// finishLocked stops sending a log that the server has stored or rejected. If the task still
// runs, the rest of its log is not read.
func (s *Shipper) finishLogLocked(f *follower) {
	if !f.ended {
		f.rejected = true
		s.bytesInFlight -= f.rewindUnacked()
		s.watch.removeLog(f)
		return
	}
	s.dropLogLocked(f)
	s.done = append(s.done, f.Attempt)
	s.watch.wakeUp()
}

func (s *Shipper) dropLogLocked(f *follower) {
	s.bytesInFlight -= f.rewindUnacked()
	s.watch.removeLog(f)
	f.dropped = true
	delete(s.logs, f.Attempt)
}

// wakeTurnLocked queues a log and wakes Run.
func (s *Shipper) wakeTurnLocked(f *follower) {
	s.queueTurnLocked(f)
	s.watch.wakeUp()
}

// queueTurnLocked puts a log at the end of the queue.
func (s *Shipper) queueTurnLocked(f *follower) {
	if !f.queued && !f.dropped {
		f.queued = true
		s.turns = append(s.turns, f)
	}
}
