package hostnode

import (
	"testing"
	"time"
)

func TestBackoff_AfterOneRun(t *testing.T) {
	ranFor := func(d time.Duration, attempt int, delay time.Duration) *run {
		r := again(exited(1, noon), attempt, delay)
		r.state.Started.At = noon.Add(-d)
		return r
	}
	unstarted := again(exited(1, noon), 3, 40*time.Second)
	unstarted.state.Started = nil
	for _, c := range []struct {
		name      string
		in        *run
		wantDelay time.Duration
		wantAt    time.Time
	}{
		{"the first run", ranFor(time.Second, 0, 0), 0, noon},
		{"the second run", ranFor(time.Second, 1, 0), 10 * time.Second, noon.Add(10 * time.Second)},
		{"a later run", ranFor(time.Second, 4, 40*time.Second), 80 * time.Second, noon.Add(80 * time.Second)},
		{"close to the limit", ranFor(time.Second, 6, 160*time.Second), 5 * time.Minute, noon.Add(5 * time.Minute)},
		{"at the limit", ranFor(time.Second, 9, 5*time.Minute), 5 * time.Minute, noon.Add(5 * time.Minute)},
		{"just not long enough to start over", ranFor(10*time.Minute-1, 4, 40*time.Second), 80 * time.Second, noon.Add(80 * time.Second)},
		{"long enough to start over", ranFor(10*time.Minute, 4, 40*time.Second), 0, noon},
		{"the run after that", ranFor(time.Second, 5, 0), 10 * time.Second, noon.Add(10 * time.Second)},
		{"a command that could not be started", unstarted, 80 * time.Second, noon.Add(80 * time.Second)},
		{"an unknown end is restarted at once", again(unknownEnd(), 1, 0), 10 * time.Second, time.Time{}},
	} {
		if delay, at := delayAfter(c.in), restartAt(c.in); delay != c.wantDelay || !at.Equal(c.wantAt) {
			t.Errorf("%s: delay %v, restart at %v; want %v, %v", c.name, delay, at, c.wantDelay, c.wantAt)
		}
	}
}
