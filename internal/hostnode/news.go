package hostnode

import (
	"context"

	"k8s4r.io/k8s4r/internal/robot/shim/supervisor"
)

// subscribeShim calls hear for each update of a shim, in order. hear is called with n.mu held, so
// that a new update cannot overtake an earlier one. It must return at once.
func (n *Node) subscribeShim(s *supervisor.Shim, hear func(supervisor.Update)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	early := n.unheard[s]
	delete(n.unheard, s)
	n.listeners[s] = hear
	for _, news := range early {
		n.deliverLocked(news)
	}
}

// dispatchUpdates delivers the updates of all shims until ctx is done.
func (n *Node) dispatchUpdates(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.keeper.Events():
		}
		for _, news := range n.keeper.Updates() {
			n.deliverUpdate(news)
		}
	}
}

func (n *Node) deliverUpdate(news supervisor.Update) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.deliverLocked(news)
}

// deliverLocked delivers an update, or keeps it until there is a subscriber. The caller must hold
// n.mu.
func (n *Node) deliverLocked(news supervisor.Update) {
	hear := n.listeners[news.Shim]
	if hear == nil {
		n.unheard[news.Shim] = append(n.unheard[news.Shim], news)
		return
	}
	if news.ShimExited {
		delete(n.listeners, news.Shim)
	}
	hear(news)
}
