package kit

import (
	"sync"
	"time"
)

// Sightings measures for how long values have not changed that other programs write, such as the
// time of a robot's last heartbeat. It counts from when this process first saw the value, not from a
// time in it: the clocks of the programs may differ, and may be set. A restart of this process starts
// the count again, so a measured time is never longer than the true one.
type Sightings[K, V comparable] struct {
	// Uptime must not count the time in which the machine sleeps (uptime.OfProcess).
	Uptime func() time.Duration

	mu      sync.Mutex
	all     map[K]sighting[V]
	pruneAt int // the number of entries at which old ones are dropped
}

// sighting is the current value of a key.
type sighting[V comparable] struct {
	value        V
	since, asked time.Duration // Uptime when it was first and last seen
	isFirst      bool
}

// forgetAfter is how long a key is kept that is not observed. It exceeds the interval in which
// informers repeat all objects.
const forgetAfter = 24 * time.Hour

// minPrune is the least number of entries at which old ones are dropped.
const minPrune = 1024

// Observe records the current value of a key, and returns for how long it has not changed. IsFirst
// reports whether this process has seen no other value, so that the value may be older.
func (s *Sightings[K, V]) Observe(key K, value V) (age time.Duration, isFirst bool) {
	now := s.Uptime()
	s.mu.Lock()
	defer s.mu.Unlock()
	last, known := s.all[key]
	if !known || last.value != value {
		last = sighting[V]{value: value, since: now, isFirst: !known}
	}
	last.asked = now
	if !known {
		s.pruneLocked(now)
	}
	s.all[key] = last
	return now - last.since, last.isFirst
}

// pruneLocked drops keys that were not observed for long, each time that the number of entries has
// doubled.
func (s *Sightings[K, V]) pruneLocked(now time.Duration) {
	if s.all == nil {
		s.all, s.pruneAt = map[K]sighting[V]{}, minPrune
	}
	if len(s.all) < s.pruneAt {
		return
	}
	for k, v := range s.all {
		if now-v.asked >= forgetAfter {
			delete(s.all, k)
		}
	}
	s.pruneAt = max(minPrune, 2*len(s.all))
}
