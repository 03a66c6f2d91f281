// Package limits bounds what clients may use, by name: requests a second (Limits), log lines and
// reports a minute (Interval), or connections at the same time (Slots).
package limits

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Limits bounds each name on its own, so that one busy client does not slow others.
type Limits struct {
	// PerSecond is the sustained rate of one name.
	PerSecond rate.Limit
	// Burst is the number of events at once after an idle period. Zero: none are allowed.
	Burst int
	// MaxNames bounds the names that are remembered, for names that unauthenticated clients
	// choose. Zero: no bound.
	MaxNames int

	mu    sync.Mutex
	names map[string]*rate.Limiter
}

// Allow reports whether one more event is within the limits of name, and counts it if so.
func (l *Limits) Allow(name string, now time.Time) bool { return l.AllowN(name, now, 1) }

// AllowN is Allow for n events, such as bytes. More than Burst count as Burst.
func (l *Limits) AllowN(name string, now time.Time, n int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	limiter := l.names[name]
	if limiter == nil {
		l.dropIdleLocked(now)
		limiter = rate.NewLimiter(l.PerSecond, l.Burst)
		l.names[name] = limiter
	}
	return limiter.AllowN(now, min(n, l.Burst))
}

// Forget drops the state of a name.
func (l *Limits) Forget(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.names, name)
}

// dropIdleLocked makes room for a new name: it drops names whose burst is full, which are like
// new, and if that is not enough, all.
func (l *Limits) dropIdleLocked(now time.Time) {
	if l.isFullLocked() {
		for name, limiter := range l.names {
			if limiter.TokensAt(now) >= float64(l.Burst) {
				delete(l.names, name)
			}
		}
	}
	if l.names == nil || l.isFullLocked() {
		l.names = map[string]*rate.Limiter{}
	}
}

func (l *Limits) isFullLocked() bool { return l.MaxNames > 0 && len(l.names) >= l.MaxNames }
