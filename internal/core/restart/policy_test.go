package restart

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// after returns the time that is d after noon.
func after(d time.Duration) time.Time { return noon.Add(d) }

func TestNext(t *testing.T) {
	const s, m = time.Second, time.Minute
	exhausted := Decision{IsExhausted: true}
	for _, c := range []struct {
		name      string
		policy    Policy
		count     Count
		noContact bool
		want      Decision
	}{
		{"the zero policy restarts nothing", Policy{}, Count{}, false, exhausted},
		{"nor does one without attempts in mode delay", Policy{WaitsForInterval: true, Delay: m}, Count{}, false, exhausted},
		{"not even without contact", Policy{Interval: m, WaitsForInterval: true}, Count{}, true, exhausted},

		{"the first restart starts the interval", Policy{Attempts: 2, Delay: m}, Count{}, false, Decision{At: after(m), Count: Count{1, noon}}},
		{"no delay is shorter than a second", Policy{Attempts: 2}, Count{}, false, Decision{At: after(s), Count: Count{1, noon}}},
		{"the last restart", Policy{Attempts: 2, Delay: m}, Count{1, after(-time.Hour)}, false, Decision{At: after(m), Count: Count{2, after(-time.Hour)}}},
		{"without an interval none comes back", Policy{Attempts: 2}, Count{2, after(-10000 * time.Hour)}, false, exhausted},
		{"an interval that goes on has no more", Policy{Attempts: 2, Interval: m}, Count{2, after(-m + 1)}, false, exhausted},
		{"the next interval has all of them", Policy{Attempts: 2, Interval: m}, Count{2, after(-m)}, false, Decision{At: after(s), Count: Count{1, noon}}},
		{"an interval that has passed is over also if restarts are left", Policy{Attempts: 3, Interval: m}, Count{1, after(-2 * m)}, false, Decision{At: after(s), Count: Count{1, noon}}},

		{"mode delay waits for the next interval", Policy{Attempts: 2, Interval: m, WaitsForInterval: true}, Count{2, after(-20 * s)}, false,
			Decision{At: after(40 * s), Count: Count{1, after(40 * s)}, WaitsForInterval: true}},
		{"for a second at the least", Policy{Attempts: 2, Interval: m, WaitsForInterval: true}, Count{2, after(-m + 1)}, false,
			Decision{At: after(s), Count: Count{1, after(s)}, WaitsForInterval: true}},
		{"and never longer than the interval, if the clock was set back", Policy{Attempts: 2, Interval: m, WaitsForInterval: true}, Count{2, after(time.Hour)}, false,
			Decision{At: after(m), Count: Count{1, after(m)}, WaitsForInterval: true}},
		{"mode delay without an interval is endless", Policy{Attempts: 2, Delay: m, WaitsForInterval: true}, Count{7, after(-m)}, false, Decision{At: after(m), Count: Count{8, after(-m)}}},

		{"restarts that are left are the same without contact", Policy{Attempts: 2, Delay: m}, Count{1, noon}, true, Decision{At: after(m), Count: Count{2, noon}}},
		{"mode delay is the same without contact", Policy{Attempts: 2, Interval: m, WaitsForInterval: true}, Count{2, after(-20 * s)}, true,
			Decision{At: after(40 * s), Count: Count{1, after(40 * s)}, WaitsForInterval: true}},
		{"mode fail waits for the next interval without contact", Policy{Attempts: 2, Interval: m}, Count{2, after(-20 * s)}, true,
			Decision{At: after(40 * s), Count: Count{1, after(40 * s)}, WaitsForInterval: true, EndsWithContact: true}},
		{"without an interval it waits twice as long as before", Policy{Attempts: 2, Delay: 10 * s}, Count{2, noon}, true,
			Decision{At: after(20 * s), Count: Count{3, noon}, EndsWithContact: true}},
		{"and again", Policy{Attempts: 2, Delay: 10 * s}, Count{3, noon}, true, Decision{At: after(40 * s), Count: Count{4, noon}, EndsWithContact: true}},
		{"for five minutes at the most", Policy{Attempts: 2}, Count{900, noon}, true, Decision{At: after(5 * m), Count: Count{901, noon}, EndsWithContact: true}},
		{"or for its own delay", Policy{Attempts: 2, Delay: 7 * m}, Count{900, noon}, true, Decision{At: after(7 * m), Count: Count{901, noon}, EndsWithContact: true}},
		{"contact ends that", Policy{Attempts: 2}, Count{900, noon}, false, exhausted},
	} {
		if got := c.policy.Next(c.count, noon, !c.noContact); got != c.want {
			t.Errorf("%s:\n%+v, want\n%+v", c.name, got, c.want)
		}
	}
}

func drawPolicy(t *rapid.T) Policy {
	seconds := func(name string, least int) time.Duration {
		return time.Duration(rapid.IntRange(least, 600).Draw(t, name)) * time.Second
	}
	return Policy{
		Attempts: rapid.Int32Range(1, 5).Draw(t, "attempts"), Interval: seconds("interval", 0), Delay: seconds("delay", 0),
		WaitsForInterval: rapid.Bool().Draw(t, "mode delay"),
	}
}

// A task that ends again and again is never restarted more often than its policy allows.
func TestNext_KeepsToPolicy(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPolicy(t)
		var c Count
		ended := noon
		for range 30 {
			d := p.Next(c, ended, true)
			if d.IsExhausted {
				if p.WaitsForInterval || c.Restarts < p.Attempts {
					t.Fatalf("%+v gives up with %+v", p, c)
				}
				return
			}
			if d.EndsWithContact {
				t.Fatalf("%+v waits for contact that the robot has", p)
			}
			if !p.IsEndless() && d.Count.Restarts > p.Attempts {
				t.Fatalf("%+v allows restart %d of its interval", p, d.Count.Restarts)
			}
			if d.Count.Since != c.Since && c.Restarts > 0 && d.Count.Since.Before(c.Since.Add(p.Interval)) {
				t.Fatalf("%+v begins an interval at %s, and the one before began at %s", p, d.Count.Since, c.Since)
			}
			if wait := d.At.Sub(ended); wait < MinDelay || wait > max(p.Delay, p.Interval, MinDelay) || !d.WaitsForInterval && wait < p.Delay {
				t.Fatalf("%+v waits %s", p, wait)
			}
			c, ended = d.Count, d.At.Add(time.Duration(rapid.IntRange(0, 100).Draw(t, "run"))*time.Second)
		}
	})
}

// A task never gives up without contact, and ends with the first contact if its restarts are used up.
func TestNext_GoesOnWithoutContact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPolicy(t)
		var c Count
		ended := noon
		for range 30 {
			d, withContact := p.Next(c, ended, false), p.Next(c, ended, true)
			if d.IsExhausted {
				t.Fatalf("%+v gives up without contact", p)
			}
			if d.EndsWithContact != withContact.IsExhausted {
				t.Fatalf("%+v: %+v without contact, %+v with", p, d, withContact)
			}
			if !withContact.IsExhausted && d != withContact {
				t.Fatalf("%+v: %+v without contact, %+v with, although restarts are left", p, d, withContact)
			}
			if wait := d.At.Sub(ended); wait < MinDelay || wait > max(p.Delay, p.Interval, maxDelayWithoutContact) {
				t.Fatalf("%+v waits %s", p, wait)
			}
			c, ended = d.Count, d.At.Add(time.Duration(rapid.IntRange(0, 100).Draw(t, "run"))*time.Second)
		}
	})
}

// A count that no policy can have made, such as one from a damaged file, leads to no endless wait.
func TestNext_BoundsWaitAfterAnyCount(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPolicy(t)
		c := Count{rapid.Int32().Draw(t, "restarts"), noon.Add(time.Duration(rapid.Int64().Draw(t, "since")))}
		d := p.Next(c, noon, rapid.Bool().Draw(t, "contact"))
		if wait := d.At.Sub(noon); !d.IsExhausted && (wait < MinDelay || wait > max(p.Delay, p.Interval, maxDelayWithoutContact)) {
			t.Fatalf("%+v waits %s after %+v", p, wait, c)
		}
	})
}
