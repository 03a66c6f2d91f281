package joinapi

import "k8s4r.io/k8s4r/internal/ratelimit"

const (
	// perSource requests a second, and atOnce: a fleet behind one address joins in
	// a while, and who guesses tokens would guess for longer than the world lasts.
	perSource = 10
	atOnce    = 60
	// mostSources are remembered: a stranger can have as many addresses as he
	// likes.
	mostSources = 4096
)

// newLimits bounds what comes from one source.
func newLimits() *ratelimit.Limits {
	return &ratelimit.Limits{PerSecond: perSource, AtOnce: atOnce, Most: mostSources}
}
