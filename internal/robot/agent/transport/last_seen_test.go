package transport

import (
	"testing"
	"time"
)

func TestLastSeen_CountsFromTheAcknowledgedHeartbeat(t *testing.T) {
	const stopAfter = time.Minute
	now := 10 * time.Hour // since boot
	open := func(dir string) *LastSeen {
		l, err := OpenLastSeen(dir, Clocks{SinceBoot: func() time.Duration { return now }})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(l.Close)
		return l
	}
	dir := t.TempDir()
	l := open(dir)
	expect := func(what string, want bool) {
		t.Helper()
		if got := l.IsPastDeadline(stopAfter); got != want {
			t.Errorf("%s: past the deadline = %v, want %v", what, got, want)
		}
	}
	expect("no heartbeat since boot", true)
	l.RecordHeartbeat(1)
	now += 20 * time.Second
	l.RecordHeartbeat(2)
	expect("two heartbeats without an acknowledgment", true)
	now += 20 * time.Second
	l.RecordAck(1)
	now += 19 * time.Second
	expect("59 s after the acknowledged heartbeat", false)
	now += time.Second
	expect("60 s after the acknowledged heartbeat", true)
	l.RecordAck(2)
	expect("40 s after the next acknowledged heartbeat", false)
	wall := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	if got := l.Time(wall); got == nil || !got.Equal(wall.Add(-40*time.Second)) {
		t.Errorf("last seen at %v, want 40 s before %v", got, wall)
	}

	if err := l.Publish(); err != nil {
		t.Fatal(err)
	}
	l = open(dir)
	expect("by the file of the agent before", false)
	now += 20 * time.Second
	expect("60 s after the last heartbeat of the agent before", true)
}
