package hostnode

import (
	"context"

	"k8s4r.io/k8s4r/internal/robot/shim/supervisor"
)

// subscribeShim calls handle for each update of a shim, in order. It is called with n.mu held, so
// that a new update cannot overtake an earlier one, and must return at once.
func (n *Node) subscribeShim(s *supervisor.Shim, handle func(supervisor.Update)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	early := n.pendingUpdates[s]
	delete(n.pendingUpdates, s)
	n.subscribers[s] = handle
	for _, update := range early {
		n.deliverLocked(update)
	}
}

// dispatchUpdates delivers the updates of all shims until ctx is done.
func (n *Node) dispatchUpdates(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.shims.Events():
		}
		for _, update := range n.shims.Updates() {
			n.deliverUpdate(update)
		}
	}
}

func (n *Node) deliverUpdate(update supervisor.Update) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.deliverLocked(update)
}

// deliverLocked delivers an update, or keeps it until there is a subscriber. The caller must hold
// n.mu.
func (n *Node) deliverLocked(update supervisor.Update) {
	handle := n.subscribers[update.Shim]
	if handle == nil {
		n.pendingUpdates[update.Shim] = append(n.pendingUpdates[update.Shim], update)
		return
	}
	if update.ShimExited {
		delete(n.subscribers, update.Shim)
	}
	handle(update)
}
