package restart

import (
	"math"
	"time"
)

// MinDelay is the least time between an end and the next start. It keeps a command that fails at once
// from being started as fast as the robot can.
const MinDelay = time.Second

// maxDelayWithoutContact bounds how long a restart waits that only a robot without contact makes,
// unless the policy's own delay is longer.
const maxDelayWithoutContact = 5 * time.Minute

// Policy is a restartPolicy. The zero value allows no restart.
type Policy struct {
	// Attempts is the number of restarts within Interval. If 0, there are none.
	Attempts int32
	// Interval in which restarts are counted. If 0, all are counted.
	Interval time.Duration
	// Delay is the time between an end and the next start. If less than MinDelay, it is MinDelay.
	Delay time.Duration
	// WaitsForInterval is mode delay: when Attempts are used up, the task waits for the next interval.
	// Without an Interval it never runs out of restarts. If false, no restart follows (mode fail).
	WaitsForInterval bool
	// OnReboot is what follows when the robot was restarted.
	OnReboot OnReboot
}

// modeDelay is the mode of a restartPolicy that waits for the next interval.
const modeDelay = "delay"

// Fields are those of a restartPolicy, as in the API.
type Fields struct {
	Attempts        int32
	Interval, Delay time.Duration
	Mode            string // delay; else fail
	OnReboot        string // restart or report; else the default of the type
}

// NewPolicy returns the policy of a task of this type with these fields.
func NewPolicy(taskType string, f Fields) Policy {
	return Policy{
		Attempts: f.Attempts, Interval: f.Interval, Delay: f.Delay, WaitsForInterval: f.Mode == modeDelay,
		OnReboot: newOnReboot(taskType, f.OnReboot),
	}
}

// Count counts the restarts of the current interval. The zero value counts none.
type Count struct {
	Restarts int32
	// Since is the start of the interval: the first end that is counted.
	Since time.Time
}

// Decision is what follows an end.
type Decision struct {
	// IsExhausted is true if no restart follows. The other fields are zero then.
	IsExhausted bool
	// At is the time of the restart.
	At time.Time
	// Count is the count after the restart.
	Count Count
	// WaitsForInterval is true if Attempts are used up, and the restart waits for the next interval.
	WaitsForInterval bool
	// EndsWithContact is true if the restart follows only because the robot has no contact. The first
	// contact before At ends the attempt instead.
	EndsWithContact bool
}

// IsEndless reports whether the policy never runs out of restarts.
func (p Policy) IsEndless() bool { return p.Attempts > 0 && p.WaitsForInterval && p.Interval == 0 }

// Next decides what follows an end at this time. Without contact to the server, used-up attempts do not
// end a task for good, because no other robot can replace it then.
func (p Policy) Next(c Count, ended time.Time, hasContact bool) Decision {
	c = p.currentCount(c, ended)
	switch {
	case p.Attempts <= 0:
		return Decision{IsExhausted: true}
	case c.Restarts < p.Attempts || p.IsEndless():
		return Decision{At: ended.Add(p.delay()), Count: c.addRestart()}
	case !p.WaitsForInterval && hasContact:
		return Decision{IsExhausted: true}
	case p.Interval > 0:
		at := latest(c.Since.Add(p.Interval), ended.Add(MinDelay))
		return Decision{At: at, Count: Count{1, at}, WaitsForInterval: true, EndsWithContact: !p.WaitsForInterval}
	default:
		delay := p.delayWithoutContact(c.Restarts - p.Attempts + 1)
		return Decision{At: ended.Add(delay), Count: c.addRestart(), EndsWithContact: true}
	}
}

// currentCount returns the count of the interval of an end. An interval that has passed starts again
// with this end. One that begins later than the end, because a clock was set back, begins with it.
func (p Policy) currentCount(c Count, ended time.Time) Count {
	switch {
	case c.Restarts <= 0 || p.Interval > 0 && !ended.Before(c.Since.Add(p.Interval)):
		return Count{Since: ended}
	case ended.Before(c.Since):
		c.Since = ended
	}
	return c
}

// LongestWait returns the longest time that may pass between an end and the restart.
func (p Policy) LongestWait() time.Duration {
	return max(p.delay(), p.Interval, maxDelayWithoutContact)
}

func (p Policy) delay() time.Duration { return max(p.Delay, MinDelay) }

// delayWithoutContact returns how long the n-th restart beyond Attempts waits, counted from 1: twice as
// long as the one before.
func (p Policy) delayWithoutContact(n int32) time.Duration {
	delay := p.delay()
	for range n {
		if delay >= maxDelayWithoutContact {
			break
		}
		delay = min(2*delay, maxDelayWithoutContact)
	}
	return delay
}

func (c Count) addRestart() Count {
	if c.Restarts < math.MaxInt32 {
		c.Restarts++
	}
	return c
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
