// Package ratelimit bounds what each of many may do in a second.
package ratelimit

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Limits bounds each name by itself, so that one who does too much holds up no other.
type Limits struct {
	// PerSecond is how much each may do in the long run.
	PerSecond rate.Limit
	// AtOnce is how much after a silence. 0: nothing at all.
	AtOnce int
	// Most is how many names are remembered, for names that a stranger can make up.
	// 0: all.
	Most int

	mu    sync.Mutex
	names map[string]*rate.Limiter
}

// Allow tells whether one more is within the limits of name, and counts it if so.
func (l *Limits) Allow(name string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	limiter := l.names[name]
	if limiter == nil {
		l.makeRoom(now)
		limiter = rate.NewLimiter(l.PerSecond, l.AtOnce)
		l.names[name] = limiter
	}
	return limiter.AllowN(now, 1)
}

// Forget drops what is known of a name.
func (l *Limits) Forget(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.names, name)
}

// makeRoom drops first those of whom a new one would not differ, and then all.
func (l *Limits) makeRoom(now time.Time) {
	if l.full() {
		for name, limiter := range l.names {
			if limiter.TokensAt(now) >= float64(l.AtOnce) {
				delete(l.names, name)
			}
		}
	}
	if l.names == nil || l.full() {
		l.names = map[string]*rate.Limiter{}
	}
}

func (l *Limits) full() bool { return l.Most > 0 && len(l.names) >= l.Most }
