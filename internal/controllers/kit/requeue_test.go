package kit

import (
	"testing"
	"time"
)

func TestRequeueAt(t *testing.T) {
	noon := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name string
		at   time.Time
		want time.Duration
	}{
		{"the zero time does not requeue", time.Time{}, 0},
		{"a future time requeues then", noon.Add(time.Minute), time.Minute},
		{"the present requeues at once", noon, time.Millisecond},
		{"a past time requeues at once", noon.Add(-time.Minute), time.Millisecond},
	} {
		if got := RequeueAt(c.at, noon).RequeueAfter; got != c.want {
			t.Errorf("%s: after %s, want %s", c.name, got, c.want)
		}
	}
}

func TestSetEarliest(t *testing.T) {
	noon := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	var at time.Time
	for _, next := range []time.Time{noon.Add(time.Minute), noon, noon.Add(time.Hour)} {
		SetEarliest(&at, next)
	}
	if !at.Equal(noon) {
		t.Errorf("earliest %s, want %s", at, noon)
	}
}
