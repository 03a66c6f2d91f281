package limits

import (
	"strings"
	"testing"
	"time"
)

func TestLimits_BoundsEachNameOnItsOwn(t *testing.T) {
	const atOnce, most = 60, 4096
	l := Limits{PerSecond: 10, Burst: atOnce, MaxNames: most}
	now := time.Now()
	allowed := 0
	for range 10 * atOnce {
		if l.Allow("10.0.0.1", now) {
			allowed++
		}
	}
	if allowed != atOnce || !l.Allow("10.0.0.2", now) || !l.Allow("10.0.0.1", now.Add(time.Second)) {
		t.Errorf("%d at once", allowed)
	}
	for i := range 3 * most {
		l.Allow(strings.Repeat("a", i%7)+string(rune(i)), now)
		if len(l.names) > most {
			t.Fatalf("%d are remembered", len(l.names))
		}
	}
}

func TestLimits_AllowNCountsMoreThanTheBurstAsTheBurst(t *testing.T) {
	l := Limits{PerSecond: 10, Burst: 100}
	now := time.Now()
	for _, step := range []struct {
		n     int
		after time.Duration
		want  bool
	}{{60, 0, true}, {60, 0, false}, {40, 0, true}, {1000, 9 * time.Second, false}, {1000, 10 * time.Second, true}, {1, 10 * time.Second, false}} {
		if got := l.AllowN("a", now.Add(step.after), step.n); got != step.want {
			t.Errorf("%d after %s: %v", step.n, step.after, got)
		}
	}
}

func TestLimits_DropsIdleNamesFirst(t *testing.T) {
	l := Limits{PerSecond: 1, Burst: 2, MaxNames: 3}
	now := time.Now()
	l.Allow("busy", now.Add(time.Hour))
	l.Allow("busy", now.Add(time.Hour))
	l.Allow("idle", now)
	l.Allow("idle too", now)
	if l.Allow("new", now.Add(time.Hour)); l.Allow("busy", now.Add(time.Hour)) {
		t.Error("a new one has freed who was held back")
	}
}

func TestLimits_ForgetResetsAName(t *testing.T) {
	l := Limits{PerSecond: 1, Burst: 1}
	now := time.Now()
	if !l.Allow("a", now) || l.Allow("a", now) {
		t.Error("one at once is not one")
	}
	if l.Forget("a"); !l.Allow("a", now) {
		t.Error("what it did is remembered")
	}
}
