package bridge

import (
	"sync"
	"time"
)

// complaints lets one log line a robot through in a while. It remembers known
// robots only, so it is bounded by their number.
type complaints struct {
	mu   sync.Mutex
	last map[string]time.Time
}

func (c *complaints) allow(robotID string, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if last, ok := c.last[robotID]; ok && now.Sub(last) < complainEvery {
		return false
	}
	if c.last == nil {
		c.last = map[string]time.Time{}
	}
	c.last[robotID] = now
	return true
}

func (c *complaints) forget(robotID string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.last, robotID)
}
