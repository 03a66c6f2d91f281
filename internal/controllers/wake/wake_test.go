package wake

import (
	"testing"
	"time"
)

func TestAt(t *testing.T) {
	noon := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name string
		at   time.Time
		want time.Duration
	}{
		{"never", time.Time{}, 0},
		{"later", noon.Add(time.Minute), time.Minute},
		{"now is soon, and not never", noon, time.Millisecond},
		{"what has passed is soon", noon.Add(-time.Minute), time.Millisecond},
	} {
		if got := At(c.at, noon).RequeueAfter; got != c.want {
			t.Errorf("%s: after %s, want %s", c.name, got, c.want)
		}
	}
}
