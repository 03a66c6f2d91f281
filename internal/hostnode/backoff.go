package hostnode

import "time"

const (
	firstDelay = 10 * time.Second
	lastDelay  = 5 * time.Minute
	// settled is how long a container must have run for its end to count as the
	// first one again.
	settled = 10 * time.Minute
)

// delayAfter is how long to wait after a run: not at all after the first, then
// 10 s, doubled with each up to 5 minutes.
func delayAfter(r *run) time.Duration {
	ran := time.Duration(0)
	if r.state.Started != nil && !r.finishedAt().IsZero() {
		ran = r.finishedAt().Sub(r.state.Started.At)
	}
	switch {
	case ran >= settled || r.attempt == 0:
		return 0
	case r.delay == 0:
		return firstDelay
	}
	return min(2*r.delay, lastDelay)
}

// restartAt is when a run that has ended is followed by the next.
func restartAt(r *run) time.Time {
	at := r.finishedAt()
	if at.IsZero() {
		return at
	}
	return at.Add(delayAfter(r))
}
