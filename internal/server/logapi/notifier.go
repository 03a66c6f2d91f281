package logapi

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// Notifier notifies readers that a task's log or state may have changed. The zero value
// is ready to use.
type Notifier struct {
	mu          sync.Mutex
	subscribers map[types.UID]map[chan struct{}]struct{}
}

// NotifyTask notifies all subscribers of a task without blocking.
func (w *Notifier) NotifyTask(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.subscribers[uid] {
		select {
		case c <- struct{}{}:
		default: // it is notified already
		}
	}
}

// subscribe returns a channel that receives changes until stop is called.
func (w *Notifier) subscribe(uid types.UID) (woken <-chan struct{}, stop func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.subscribers == nil {
		w.subscribers = map[types.UID]map[chan struct{}]struct{}{}
	}
	if w.subscribers[uid] == nil {
		w.subscribers[uid] = map[chan struct{}]struct{}{}
	}
	c := make(chan struct{}, 1)
	w.subscribers[uid][c] = struct{}{}
	return c, func() { w.unsubscribe(uid, c) }
}

func (w *Notifier) unsubscribe(uid types.UID, c chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.subscribers[uid], c)
	if len(w.subscribers[uid]) == 0 {
		delete(w.subscribers, uid)
	}
}
