package agent

import (
	"sync"
	"time"

	"k8s4r.io/k8s4r/internal/shim"
	"k8s4r.io/k8s4r/internal/wire"
)

// contact keeps when the robot was last in contact: when it sent the last
// heartbeat that the server has acknowledged, by the clock of package shim.
type contact struct {
	file *shim.Contact

	mu   sync.Mutex
	last time.Duration            // since boot; zero: not since the agent runs
	sent map[uint64]time.Duration // heartbeats that are not acknowledged
	told time.Duration            // as the file has it
	used bool                     // somebody reads the file
}

// maxUnanswered bounds the heartbeats that are remembered.
const maxUnanswered = 64

func openContact(dir string) (*contact, error) {
	file, err := shim.OpenContact(dir)
	if err != nil {
		return nil, err
	}
	return &contact{file: file, sent: map[uint64]time.Duration{}}, nil
}

// beat takes in that a heartbeat is about to be sent.
func (c *contact) beat(n uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent[n] = shim.SinceBoot()
	delete(c.sent, n-maxUnanswered)
}

// acked takes in that the server has acknowledged all heartbeats up to n.
func (c *contact) acked(n uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for m, at := range c.sent {
		if m <= n {
			c.last = max(c.last, at)
			delete(c.sent, m)
		}
	}
	if c.used {
		_ = c.write() // the next heartbeat tries again, and until then the fence is early
	}
}

// when is the time of the last contact. Nil: none since the agent runs.
func (c *contact) when(now time.Time) *time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last == 0 {
		return nil
	}
	t := now.Add(c.last - shim.SinceBoot()).UTC()
	return &t
}

// watched takes in that a shim reads the file, which has no more to say yet.
func (c *contact) watched(s wire.TaskSpec) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.used = c.used || s.StopOnRobotAfter > 0
}

// guard makes the file say what is known now, and from here on: a shim is about to
// read it.
func (c *contact) guard() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.used = true
	return c.write()
}

// write brings the file up to date. What an agent before has written is not made
// older.
func (c *contact) write() error {
	if c.last <= c.told {
		return nil
	}
	if err := c.file.Write(c.last); err != nil {
		return err
	}
	c.told = c.last
	return nil
}

// fenced tells whether the robot must not start the task: it has been out of
// contact for as long as it lets the task run, and another one may have it.
func (c *contact) fenced(s wire.TaskSpec) bool {
	if s.StopOnRobotAfter == 0 {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return shim.SinceBoot() >= max(c.last, c.file.Read())+time.Duration(s.StopOnRobotAfter)
}
