package up

import (
	"testing"
	"time"
)

func TestHeartbeatInterval_KeepsRobotsOnline(t *testing.T) {
	for offlineAfter, want := range map[time.Duration]time.Duration{
		5 * time.Minute: 0, 90 * time.Second: 0, 12 * time.Second: 4 * time.Second, time.Second: time.Second,
	} {
		if got := heartbeatInterval(offlineAfter); got != want {
			t.Errorf("offline after %s: every %s, want %s", offlineAfter, got, want)
		}
	}
}
