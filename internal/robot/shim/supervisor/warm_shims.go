package supervisor

import (
	"sync"

	"k8s4r.io/k8s4r/internal/robot/shim"
)

// warmShimPool holds the warm shims: one of each kind that was requested before. A robot that has
// not run any task has none.
type warmShimPool struct {
	mu     sync.Mutex
	ready  map[shim.Kind]*shim.WarmShim // nil value: taken
	closed bool
}

// takeWarmShim returns a warm shim of this kind, or nil if there is none. The next refill replaces
// it.
func (p *warmShimPool) takeWarmShim(kind shim.Kind) *shim.WarmShim {
	p.mu.Lock()
	defer p.mu.Unlock()
	warm := p.ready[kind]
	if p.ready == nil {
		p.ready = map[shim.Kind]*shim.WarmShim{}
	}
	p.ready[kind] = nil
	return warm
}

// refill replaces the warm shims that were taken.
func (p *warmShimPool) refill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for kind, warm := range p.ready {
		if warm == nil && !p.closed {
			p.ready[kind], _ = shim.StartWarmShim(kind) // on an error the next task starts its shim itself
		}
	}
}

// closeAll ends all warm shims. No more are started.
func (p *warmShimPool) closeAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for kind, warm := range p.ready {
		warm.Close()
		p.ready[kind] = nil
	}
}
