package up

import (
	"context"
	"errors"
	"sync/atomic"

	"k8s4r.io/k8s4r/internal/platform/program"
)

// probes are the readiness checks of manager and server, which a deployment would request over
// HTTP. The zero value is not ready.
type probes struct {
	program.Health
	started atomic.Bool
}

// markStarted is called when the caches are filled and all checks have been added.
func (p *probes) markStarted() { p.started.Store(true) }

// checkReady returns nil if all checks pass. If a robot registered before the server is subscribed
// to the broker, it would retry only seconds later.
func (p *probes) checkReady(ctx context.Context) error {
	if !p.started.Load() {
		return errors.New("caches are not filled yet")
	}
	return p.Ready(ctx)
}
