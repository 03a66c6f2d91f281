package up

import (
	"context"
	"errors"
	"sync/atomic"

	"k8s4r.io/k8s4r/internal/program"
)

// probes are what a cluster would ask manager and server over HTTP. Here they are asked
// directly too. The zero value is not ready.
type probes struct {
	program.Health
	begun atomic.Bool
}

// begin says that the caches are filled and the checks are all there.
func (p *probes) begin() { p.begun.Store(true) }

// ready returns nil when every check passes. A robot that registers before the
// server listens to the broker would try again but seconds later.
func (p *probes) ready(ctx context.Context) error {
	if !p.begun.Load() {
		return errors.New("caches are not filled yet")
	}
	return p.Ready(ctx)
}
