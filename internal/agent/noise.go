package agent

import (
	"log/slog"
	"maps"
	"sync"
	"time"
)

// noise counts troubles that can come in any number, messages that were dropped
// above all, and logs each at most once a minute, lest a peer that sends
// garbage fills the robot's disk with our log.
type noise struct {
	log *slog.Logger
	now func() time.Time

	mu     sync.Mutex
	count  map[string]int // since the last line about it
	said   map[string]time.Time
	totals map[string]int // since the agent started
}

const noiseEvery = time.Minute

func newNoise(log *slog.Logger, now func() time.Time) *noise {
	return &noise{log: log, now: now, count: map[string]int{}, said: map[string]time.Time{}, totals: map[string]int{}}
}

// drop counts one message. What is one of a few fixed words.
func (n *noise) drop(what string, err error) { n.warn("dropped "+what, err) }

// warn counts a trouble, which is one of a few fixed lines.
func (n *noise) warn(line string, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.totals[line]++
	n.count[line]++
	if now := n.now(); now.Sub(n.said[line]) >= noiseEvery {
		n.log.Warn(line, "count", n.count[line], "last", err)
		n.said[line], n.count[line] = now, 0
	}
}

// total is the number of all of them so far.
func (n *noise) total() (all int) {
	for _, count := range n.byLine() {
		all += count
	}
	return all
}

// byLine is the number of each so far.
func (n *noise) byLine() map[string]int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.totals)
}
