package logapi

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// Wakes tells readers that a task's log or state may have changed. The zero value
// is ready.
type Wakes struct {
	mu      sync.Mutex
	sleeper map[types.UID]map[chan struct{}]struct{}
}

// Wake wakes all who wait for a task. It never waits itself.
func (w *Wakes) Wake(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.sleeper[uid] {
		select {
		case c <- struct{}{}:
		default: // it has not looked yet since it was last woken
		}
	}
}

// subscribe returns a channel that says when to look, until stop is called.
func (w *Wakes) subscribe(uid types.UID) (woken <-chan struct{}, stop func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.sleeper == nil {
		w.sleeper = map[types.UID]map[chan struct{}]struct{}{}
	}
	if w.sleeper[uid] == nil {
		w.sleeper[uid] = map[chan struct{}]struct{}{}
	}
	c := make(chan struct{}, 1)
	w.sleeper[uid][c] = struct{}{}
	return c, func() { w.unsubscribe(uid, c) }
}

func (w *Wakes) unsubscribe(uid types.UID, c chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.sleeper[uid], c)
	if len(w.sleeper[uid]) == 0 {
		delete(w.sleeper, uid)
	}
}
