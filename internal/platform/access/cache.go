package access

import (
	"sync"
	"time"
)

// mostRemembered bounds what a memory holds: a stranger can make up as many
// tokens as he likes.
const mostRemembered = 4096

// memory keeps answers until they are too old. The zero value is ready.
type memory[K comparable, V any] struct {
	mu      sync.Mutex
	entries map[K]entry[V]
}

type entry[V any] struct {
	value V
	until time.Time
}

func (m *memory[K, V]) get(k K, now time.Time) (V, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok := m.entries[k]
	if !ok || now.After(e.until) {
		var zero V
		return zero, false
	}
	return e.value, true
}

func (m *memory[K, V]) put(k K, v V, until, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.entries) >= mostRemembered {
		m.forgetOld(now)
	}
	if m.entries == nil || len(m.entries) >= mostRemembered {
		m.entries = map[K]entry[V]{}
	}
	m.entries[k] = entry[V]{value: v, until: until}
}

func (m *memory[K, V]) forgetOld(now time.Time) {
	for k, e := range m.entries {
		if now.After(e.until) {
			delete(m.entries, k)
		}
	}
}
