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
func (n *Notifier) NotifyTask(uid types.UID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.subscribers[uid] {
		select {
		case c <- struct{}{}:
		default: // it is notified already
		}
	}
}

// subscribe returns a channel that receives changes until stop is called.
func (n *Notifier) subscribe(uid types.UID) (changed <-chan struct{}, stop func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.subscribers == nil {
		n.subscribers = map[types.UID]map[chan struct{}]struct{}{}
	}
	if n.subscribers[uid] == nil {
		n.subscribers[uid] = map[chan struct{}]struct{}{}
	}
	c := make(chan struct{}, 1)
	n.subscribers[uid][c] = struct{}{}
	return c, func() { n.unsubscribe(uid, c) }
}

func (n *Notifier) unsubscribe(uid types.UID, c chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.subscribers[uid], c)
	if len(n.subscribers[uid]) == 0 {
		delete(n.subscribers, uid)
	}
}
