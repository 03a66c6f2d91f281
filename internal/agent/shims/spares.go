package shims

import (
	"sync"

	"k8s4r.io/k8s4r/internal/shim"
)

// spares are shims that wait for the attempts to come: one of each kind that was
// asked for. A robot that has run nothing yet has
// none.
type spares struct {
	mu     sync.Mutex
	ready  map[shim.Kind]*shim.Spare // nil: taken
	closed bool
}

// take returns one, if there is one.
func (s *spares) take(kind shim.Kind) *shim.Spare {
	s.mu.Lock()
	defer s.mu.Unlock()
	spare := s.ready[kind]
	if s.ready == nil {
		s.ready = map[shim.Kind]*shim.Spare{}
	}
	s.ready[kind] = nil
	return spare
}

// fill replaces those that were taken.
func (s *spares) fill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for kind, spare := range s.ready {
		if spare == nil && !s.closed {
			s.ready[kind], _ = shim.NewSpare(kind) // an error: the next task waits for its shim
		}
	}
}

// close ends all of them, for good.
func (s *spares) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for kind, spare := range s.ready {
		spare.Close()
		s.ready[kind] = nil
	}
}
