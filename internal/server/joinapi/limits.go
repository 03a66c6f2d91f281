package joinapi

import "k8s4r.io/k8s4r/internal/platform/limits"

const (
	// requestsPerSecond and requestBurst limit one address: a fleet behind one address
	// joins in a while, and tokens cannot be guessed.
	requestsPerSecond = 10
	requestBurst      = 60
	// maxSources bounds the addresses in memory.
	maxSources = 4096
)

const (
	// renewalsPerSecond and renewalBurst limit one key: a certificate of one minute is
	// renewed every forty seconds, and a robot that waits for approval asks each second.
	renewalsPerSecond = 0.5
	renewalBurst      = 30
	// maxKeys bounds the keys in memory.
	maxKeys = 64 << 10
)

// newRenewals limits the renewals of one key of a robot: each costs a signature and a write.
func newRenewals() *limits.Limits {
	return &limits.Limits{PerSecond: renewalsPerSecond, Burst: renewalBurst, MaxNames: maxKeys}
}

// newLimits limits the requests from one address.
func newLimits() *limits.Limits {
	return &limits.Limits{PerSecond: requestsPerSecond, Burst: requestBurst, MaxNames: maxSources}
}
