package access

import (
	"sync"
	"time"
)

// maxCachedAnswers bounds a cache: an unauthenticated client can send any number of different
// tokens.
const maxCachedAnswers = 4096

// answerCache keeps answers until they expire. The zero value is ready to use.
type answerCache[K comparable, V any] struct {
	mu      sync.Mutex
	entries map[K]entry[V]
}

type entry[V any] struct {
	value V
	until time.Time
}

func (m *answerCache[K, V]) lookUp(k K, now time.Time) (V, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok := m.entries[k]
	if !ok || now.After(e.until) {
		var zero V
		return zero, false
	}
	return e.value, true
}

func (m *answerCache[K, V]) remember(k K, v V, until, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.entries) >= maxCachedAnswers {
		m.dropExpiredLocked(now)
	}
	if m.entries == nil || len(m.entries) >= maxCachedAnswers {
		m.entries = map[K]entry[V]{}
	}
	m.entries[k] = entry[V]{value: v, until: until}
}

func (m *answerCache[K, V]) dropExpiredLocked(now time.Time) {
	for k, e := range m.entries {
		if now.After(e.until) {
			delete(m.entries, k)
		}
	}
}
