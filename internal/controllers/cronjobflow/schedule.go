package cronjobflow

import (
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // images have no database of time zones

	"github.com/robfig/cron/v3"

	cronv1 "k8s4r.io/k8s4r/api/cron/v1alpha1"
)

// schedule is when flows are due.
type schedule struct {
	times cron.Schedule
	zone  *time.Location
}

// parse reads the schedule of a CronJobFlow. The error says what is wrong where, and
// its reason is one word.
func parse(spec *cronv1.CronJobFlowSpec) (s schedule, reason string, err error) {
	s.zone = time.Local
	if spec.TimeZone != nil {
		if s.zone, err = time.LoadLocation(*spec.TimeZone); err != nil || *spec.TimeZone == "" || strings.EqualFold(*spec.TimeZone, "local") {
			return s, "UnknownTimeZone", fmt.Errorf("spec.timeZone: %q is not known; write a name such as Europe/Berlin or Etc/UTC", *spec.TimeZone)
		}
	}
	if strings.Contains(spec.Schedule, "TZ") {
		return s, "UnparsableSchedule", fmt.Errorf("spec.schedule: %q names a time zone; write that into spec.timeZone", spec.Schedule)
	}
	if s.times, err = cron.ParseStandard(spec.Schedule); err != nil {
		return s, "UnparsableSchedule", fmt.Errorf("spec.schedule: %q cannot be read: %w; write minute, hour, day of the month, month and day of the week, such as 30 2 * * 1-5", spec.Schedule, err)
	}
	if every, ok := s.times.(cron.ConstantDelaySchedule); ok && every.Delay < time.Minute {
		return s, "UnparsableSchedule", fmt.Errorf("spec.schedule: %q is more often than once a minute; write @every 1m or longer", spec.Schedule)
	}
	return s, "", nil
}

// next is the first time after t. Zero: there is none within five years, as for the
// 31st of February.
func (s schedule) next(t time.Time) time.Time { return s.times.Next(t.In(s.zone)) }

// wake is the first time that comes, once those up to now are served; after is the last
// that was. Times that are so far apart count from there, not from now: a restart would
// put them off each time.
func (s schedule) wake(after, now time.Time) time.Time {
	if every, ok := s.times.(cron.ConstantDelaySchedule); ok {
		if last := s.lastOf(every.Delay, after, now); !last.IsZero() {
			return last.Add(every.Delay)
		}
		return s.next(after)
	}
	return s.next(now)
}

// last is the last time after one and not after another. Zero: there is none. A
// schedule knows only what comes next, so it is asked from ever earlier.
func (s schedule) last(after, until time.Time) time.Time {
	if every, ok := s.times.(cron.ConstantDelaySchedule); ok {
		return s.lastOf(every.Delay, after, until)
	}
	for _, span := range []time.Duration{time.Hour, 24 * time.Hour, 32 * 24 * time.Hour, 400 * 24 * time.Hour, until.Sub(after)} {
		from := until.Add(-span)
		if from.Before(after) {
			from = after
		}
		var found time.Time
		for t := s.next(from); !t.IsZero() && !t.After(until); t = s.next(t) {
			found = t
		}
		if !found.IsZero() || from.Equal(after) {
			return found
		}
	}
	return time.Time{}
}

// lastOf times that are so far apart. They count from the one before, whenever that
// was.
func (s schedule) lastOf(delay time.Duration, after, until time.Time) time.Time {
	first := s.next(after)
	if first.After(until) {
		return time.Time{}
	}
	return first.Add(until.Sub(first) / delay * delay)
}

// manyMissed is how many missed times are a sign of a wrong clock, rather than of a
// manager that was away.
const manyMissed = 100

// missedMany tells whether more than manyMissed times are after one and not after
// another.
func (s schedule) missedMany(after, until time.Time) bool {
	t := after
	for range manyMissed + 1 {
		if t = s.next(t); t.IsZero() || t.After(until) {
			return false
		}
	}
	return true
}
