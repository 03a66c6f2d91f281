package agent

import (
	"log/slog"
	"maps"
	"sync"
	"time"
)

// rateLimitedLog counts problems such as dropped messages, and logs each kind at most once a
// minute, so that a peer that sends malformed messages does not fill the robot's disk.
type rateLimitedLog struct {
	log *slog.Logger
	now func() time.Time

	mu          sync.Mutex
	sinceLogged map[string]int // since the last line about it
	loggedAt    map[string]time.Time
	totals      map[string]int // since the agent started
}

const logInterval = time.Minute

func newRateLimitedLog(log *slog.Logger, now func() time.Time) *rateLimitedLog {
	return &rateLimitedLog{log: log, now: now, sinceLogged: map[string]int{}, loggedAt: map[string]time.Time{}, totals: map[string]int{}}
}

// WarnDropped counts a dropped message. The number of different texts must be small.
func (n *rateLimitedLog) WarnDropped(what string, err error) { n.Warn("dropped "+what, err) }

// Warn counts a problem. The number of different lines must be small.
func (n *rateLimitedLog) Warn(line string, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.totals[line]++
	n.sinceLogged[line]++
	if now := n.now(); now.Sub(n.loggedAt[line]) >= logInterval {
		n.log.Warn(line, "count", n.sinceLogged[line], "last", err)
		n.loggedAt[line], n.sinceLogged[line] = now, 0
	}
}

// totalCount returns the number of all problems since the agent started.
func (n *rateLimitedLog) totalCount() (all int) {
	for _, count := range n.countsByLine() {
		all += count
	}
	return all
}

// countsByLine returns the number of each problem since the agent started.
func (n *rateLimitedLog) countsByLine() map[string]int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.totals)
}
