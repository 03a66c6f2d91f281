package kit

import (
	"testing"
	"time"
)

func TestSightings_CountFromFirstSight(t *testing.T) {
	now := time.Hour
	s := Sightings[string, int]{Uptime: func() time.Duration { return now }}
	for i, c := range []struct {
		pass    time.Duration
		key     string
		value   int
		age     time.Duration
		isFirst bool
	}{
		{0, "a", 1, 0, true},
		{time.Minute, "a", 1, time.Minute, true},
		{0, "b", 1, 0, true},
		{time.Minute, "a", 2, 0, false},
		{time.Minute, "a", 2, time.Minute, false},
		{0, "b", 1, 2 * time.Minute, true},
		{0, "a", 1, 0, false},
	} {
		now += c.pass
		if age, isFirst := s.Observe(c.key, c.value); age != c.age || isFirst != c.isFirst {
			t.Errorf("step %d: age %s, first %v", i, age, isFirst)
		}
	}
}

func TestSightings_ForgetKeysThatAreNotObserved(t *testing.T) {
	var now time.Duration
	s := Sightings[int, int]{Uptime: func() time.Duration { return now }}
	for i := range minPrune {
		s.Observe(i, 0)
	}
	now = forgetAfter - 1
	s.Observe(0, 0)
	now = forgetAfter
	s.Observe(minPrune, 0)
	if len(s.all) != 2 {
		t.Errorf("%d keys are kept", len(s.all))
	}
	if age, _ := s.Observe(0, 0); age != forgetAfter {
		t.Errorf("the age of a kept key is %s", age)
	}
}
