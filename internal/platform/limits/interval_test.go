package limits

import (
	"testing"
	"time"
)

func TestInterval_AllowsOneEventPerPeriod(t *testing.T) {
	start := time.Now()
	i := Interval{Period: time.Minute}
	for _, c := range []struct {
		name  string
		after time.Duration
		want  bool
	}{
		{"a", 0, true},
		{"a", time.Minute - 1, false},
		{"b", time.Minute - 1, true},
		{"a", time.Minute, true},
		{"a", time.Minute + 1, false},
	} {
		if got := i.Allow(c.name, start.Add(c.after)); got != c.want {
			t.Errorf("%s after %s: %v", c.name, c.after, got)
		}
	}
	if i.Forget("a"); !i.Allow("a", start.Add(time.Minute+2)) {
		t.Error("a forgotten name is still in its period")
	}
}

func TestInterval_BoundsTheNames(t *testing.T) {
	start := time.Now()
	i := Interval{Period: time.Minute, MaxNames: 2}
	i.Allow("a", start)
	i.Allow("b", start.Add(time.Second))
	if i.Allow("c", start.Add(2*time.Second)) {
		t.Error("a third name is allowed while two are within their period")
	}
	if !i.Allow("c", start.Add(time.Minute)) || len(i.last) != 2 {
		t.Errorf("the name whose period is over keeps its room: %v", i.last)
	}
}
