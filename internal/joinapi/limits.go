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

const (
	// perRobot renewals a second, and renewalsAtOnce: a certificate of a minute is
	// renewed every forty seconds, and one who waits for the manager asks each second.
	perRobot       = 0.5
	renewalsAtOnce = 30
	// mostRobots are remembered.
	mostRobots = 64 << 10
)

// newRenewals bounds what comes with one robot's certificate, from wherever: each
// renewal costs a signature and a write.
func newRenewals() *ratelimit.Limits {
	return &ratelimit.Limits{PerSecond: perRobot, AtOnce: renewalsAtOnce, Most: mostRobots}
}

// newLimits bounds what comes from one source.
func newLimits() *ratelimit.Limits {
	return &ratelimit.Limits{PerSecond: perSource, AtOnce: atOnce, Most: mostSources}
}
