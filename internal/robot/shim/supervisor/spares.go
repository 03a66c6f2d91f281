package supervisor

import (
	"sync"

	"k8s4r.io/k8s4r/internal/robot/shim"
)

// warmShims holds the warm shims: one of each kind that was asked for before. A robot that has not
// run any task has none.
type warmShims struct {
	mu     sync.Mutex
	ready  map[shim.Kind]*shim.WarmShim // nil value: taken
	closed bool
}

// takeOne returns a warm shim of this kind, or nil if there is none, and requests another one.
func (s *warmShims) takeOne(kind shim.Kind) *shim.WarmShim {
	s.mu.Lock()
	defer s.mu.Unlock()
	spare := s.ready[kind]
	if s.ready == nil {
		s.ready = map[shim.Kind]*shim.WarmShim{}
	}
	s.ready[kind] = nil
	return spare
}

// refill replaces the warm shims that were taken.
func (s *warmShims) refill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for kind, spare := range s.ready {
		if spare == nil && !s.closed {
			s.ready[kind], _ = shim.NewSpare(kind) // on an error the next task starts its shim itself
		}
	}
}

// closeAll ends all warm shims. No more are started.
func (s *warmShims) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for kind, spare := range s.ready {
		spare.Close()
		s.ready[kind] = nil
	}
}
