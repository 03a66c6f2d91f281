package transport

import (
	"sync"
	"time"

	"k8s4r.io/k8s4r/internal/robot/shim"
)

// LastSeen records when the agent sent the last heartbeat that the server acknowledged, by
// the clock of package shim. Tasks with a self-stop deadline count from then, so shims
// read it from a file.
type LastSeen struct {
	file   *shim.LastSeenFile
	clocks Clocks

	mu         sync.Mutex
	last       time.Duration            // since boot; zero: none since the agent started
	sent       map[uint64]time.Duration // heartbeats that are not acknowledged
	written    time.Duration            // the time in the file
	hasReaders bool                     // shims read the file
}

// Clocks are the clocks of a robot.
type Clocks struct {
	SinceBoot func() time.Duration // that of the shims (shim.SinceBoot)
	Now       func() time.Time
	// Hardware is the clock that runs while the robot is off (hwclock.Read). If nil, there is none.
	Hardware func() (time.Time, error)
}

// maxUnanswered bounds the heartbeats that are remembered.
const maxUnanswered = 64

// OpenLastSeen opens the file in the state directory. Close must follow.
func OpenLastSeen(dir string, clocks Clocks) (*LastSeen, error) {
	file, err := shim.OpenLastSeenFile(dir)
	if err != nil {
		return nil, err
	}
	return &LastSeen{file: file, clocks: clocks, sent: map[uint64]time.Duration{}}, nil
}

// Close closes the file. Shims can still read it.
func (c *LastSeen) Close() { c.file.Close() }

// RecordHeartbeat records that a heartbeat is about to be sent.
func (c *LastSeen) RecordHeartbeat(seq uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent[seq] = c.clocks.SinceBoot()
	delete(c.sent, seq-maxUnanswered)
}

// RecordAck records that the server has acknowledged all heartbeats up to this number.
func (c *LastSeen) RecordAck(seq uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for n, at := range c.sent {
		if n <= seq {
			c.last = max(c.last, at)
			delete(c.sent, n)
		}
	}
	if c.hasReaders {
		_ = c.writeLocked() // the next heartbeat tries again; until then tasks stop too early at worst
	}
}

// Time returns when the last acknowledged heartbeat was sent. It is nil if none was
// acknowledged since the agent started.
func (c *LastSeen) Time(now time.Time) *time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last == 0 {
		return nil
	}
	t := now.Add(c.last - c.clocks.SinceBoot()).UTC()
	return &t
}

// AddReader keeps the file up to date from the next acknowledgment on. The runner calls it
// for attempts that an earlier agent has accepted.
func (c *LastSeen) AddReader() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hasReaders = true
}

// Publish writes the file, and keeps it up to date from here on. The runner calls it
// before it starts a shim that reads it.
func (c *LastSeen) Publish() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hasReaders = true
	return c.writeLocked()
}

// writeLocked brings the file up to date. It never replaces a time that an earlier agent
// wrote by an older one.
func (c *LastSeen) writeLocked() error {
	if c.last <= c.written {
		return nil
	}
	if err := c.file.Write(c.last, c.hardwareTimeLocked(c.last)); err != nil {
		return err
	}
	c.written = c.last
	return nil
}

// IsPastDeadline reports whether the robot has been without contact for as long as
// stopAfter, so that its task may have been moved to another robot.
func (c *LastSeen) IsPastDeadline(stopAfter time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := c.file.Read()
	if c.last > 0 {
		last = max(last, c.last)
	}
	return c.clocks.SinceBoot() >= last+stopAfter
}

// hardwareTimeLocked returns what the hardware clock showed at a time since boot, as far as is known now. It is
// zero if that is not known.
func (c *LastSeen) hardwareTimeLocked(at time.Duration) time.Time {
	if c.clocks.Hardware == nil {
		return time.Time{}
	}
	now, err := c.clocks.Hardware()
	if err != nil {
		return time.Time{}
	}
	return now.Add(at - c.clocks.SinceBoot())
}
