package limits

import (
	"maps"
	"sync"
	"time"
)

// Interval allows one event of each name per period, such as one log line a minute about
// each robot.
type Interval struct {
	// Period between two events of one name. It must be positive.
	Period time.Duration
	// MaxNames bounds the names that are remembered; while they are all within their period,
	// events of other names are not allowed. Zero: no bound.
	MaxNames int

	mu   sync.Mutex
	last map[string]time.Time // of the event that was allowed, by name
}

// Allow reports whether a name may have an event now, and starts its period if so.
func (i *Interval) Allow(name string, now time.Time) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	last, ok := i.last[name]
	switch {
	case ok && now.Sub(last) < i.Period:
		return false
	case !ok && !i.hasRoomLocked(now):
		return false
	}
	if i.last == nil {
		i.last = map[string]time.Time{}
	}
	i.last[name] = now
	return true
}

// Forget drops the period of a name.
func (i *Interval) Forget(name string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.last, name)
}

// hasRoomLocked reports whether one more name can be remembered, after it has dropped those
// whose period is over.
func (i *Interval) hasRoomLocked(now time.Time) bool {
	if i.MaxNames == 0 || len(i.last) < i.MaxNames {
		return true
	}
	maps.DeleteFunc(i.last, func(_ string, at time.Time) bool { return now.Sub(at) >= i.Period })
	return len(i.last) < i.MaxNames
}
