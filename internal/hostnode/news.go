package hostnode

import (
	"context"

	"k8s4r.io/k8s4r/internal/agent/shims"
)

// listen has what a shim says brought to somebody, in the order in which it says it.
// hear only takes a note: it is called under the node's lock, for what a shim says
// meanwhile must not overtake what it has said before.
func (n *Node) listen(s *shims.Shim, hear func(shims.News)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	early := n.unheard[s]
	delete(n.unheard, s)
	n.listeners[s] = hear
	for _, news := range early {
		n.pass(news)
	}
}

// dispatch brings what shims say to those who listen.
func (n *Node) dispatch(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.keeper.Rings():
		}
		for _, news := range n.keeper.News() {
			n.bring(news)
		}
	}
}

func (n *Node) bring(news shims.News) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pass(news)
}

// pass hands news on, or keeps them until somebody listens. n.mu is held.
func (n *Node) pass(news shims.News) {
	hear := n.listeners[news.Shim]
	if hear == nil {
		n.unheard[news.Shim] = append(n.unheard[news.Shim], news)
		return
	}
	if news.Gone {
		delete(n.listeners, news.Shim)
	}
	hear(news)
}
