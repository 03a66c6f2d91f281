package hostnode

import "time"

const (
	firstDelay = 10 * time.Second
	lastDelay  = 5 * time.Minute
	// backoffResetAfter is how long a container must have run before the back-off starts over.
	backoffResetAfter = 10 * time.Minute
)

// delayAfter returns the delay after a run: 0 after the first one, then 10 s, doubled each time up
// to 5 minutes.
func delayAfter(r *run) time.Duration {
	ran := time.Duration(0)
	if r.state.Started != nil && !r.finishedAt().IsZero() {
		ran = r.finishedAt().Sub(r.state.Started.At)
	}
	switch {
	case ran >= backoffResetAfter || r.attempt == 0:
		return 0
	case r.delay == 0:
		return firstDelay
	}
	return min(2*r.delay, lastDelay)
}

// restartAt returns the earliest time of the next run. It is zero if the end of the run is
// unknown.
func restartAt(r *run) time.Time {
	at := r.finishedAt()
	if at.IsZero() {
		return at
	}
	return at.Add(delayAfter(r))
}
