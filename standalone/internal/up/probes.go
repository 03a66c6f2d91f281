package up

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
)

// probes are the readiness checks that a cluster would ask for over HTTP. Here
// they are asked directly. The zero value is not ready.
type probes struct {
	mu     sync.Mutex
	begun  bool
	checks map[string]healthz.Checker
}

// begin says that the caches are filled and the checks are all there.
func (p *probes) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.begun = true
}

// ready returns nil when every check passes. A robot that registers before the
// server listens to the broker would try again but seconds later.
func (p *probes) ready(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.begun {
		return errors.New("caches are not filled yet")
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "/readyz", nil)
	if err != nil {
		return err
	}
	for name, check := range p.checks {
		if err := check(request); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// probed is a manager whose readiness checks go to probes.
type probed struct {
	ctrl.Manager
	probes *probes
}

// AddReadyzCheck implements ctrl.Manager.
func (m probed) AddReadyzCheck(name string, check healthz.Checker) error {
	m.probes.mu.Lock()
	defer m.probes.mu.Unlock()
	if m.probes.checks == nil {
		m.probes.checks = map[string]healthz.Checker{}
	}
	m.probes.checks[name] = check
	return nil
}
