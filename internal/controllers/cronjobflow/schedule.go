package cronjobflow

import (
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // container images have no time zone database

	"github.com/robfig/cron/v3"

	cronv1 "k8s4r.io/k8s4r/api/cron/v1alpha1"
)

// schedule computes when flows are due.
type schedule struct {
	times cron.Schedule
	zone  *time.Location
}

// parseSchedule parses schedule and time zone of a CronJobFlow. reason is the reason of
// the condition Valid if there is an error.
func parseSchedule(spec *cronv1.CronJobFlowSpec) (s schedule, reason string, err error) {
	s.zone = time.Local
	if spec.TimeZone != nil {
		if s.zone, err = time.LoadLocation(*spec.TimeZone); err != nil || *spec.TimeZone == "" || strings.EqualFold(*spec.TimeZone, "local") {
			return s, "UnknownTimeZone", fmt.Errorf("spec.timeZone: unknown time zone %q; use a name such as Europe/Berlin or Etc/UTC", *spec.TimeZone)
		}
	}
	if strings.Contains(spec.Schedule, "TZ") {
		return s, "UnparsableSchedule", fmt.Errorf("spec.schedule: %q contains a time zone; set spec.timeZone instead", spec.Schedule)
	}
	if s.times, err = cron.ParseStandard(spec.Schedule); err != nil {
		return s, "UnparsableSchedule", fmt.Errorf("spec.schedule: invalid schedule %q: %w; specify minute, hour, day of month, month and day of week, for example 30 2 * * 1-5", spec.Schedule, err)
	}
	if every, ok := s.times.(cron.ConstantDelaySchedule); ok && every.Delay < time.Minute {
		return s, "UnparsableSchedule", fmt.Errorf("spec.schedule: %q is more frequent than once a minute; use @every 1m or longer", spec.Schedule)
	}
	return s, "", nil
}

// nextTime returns the first time after t. Zero if there is none within five years, as for
// February 31.
func (s schedule) nextTime(t time.Time) time.Time { return s.times.Next(t.In(s.zone)) }

// nextDueTime returns the first time after now; after is the last time that was served.
// Constant delays count from there, not from now: each restart of the manager would
// postpone them.
func (s schedule) nextDueTime(after, now time.Time) time.Time {
	if every, ok := s.times.(cron.ConstantDelaySchedule); ok {
		if last := s.lastConstantDelayTime(every.Delay, after, now); !last.IsZero() {
			return last.Add(every.Delay)
		}
		return s.nextTime(after)
	}
	return s.nextTime(now)
}

// lastTime returns the last time in (after, until], or zero if there is none.
// cron.Schedule can only search forward, so the search starts earlier and earlier.
func (s schedule) lastTime(after, until time.Time) time.Time {
	if every, ok := s.times.(cron.ConstantDelaySchedule); ok {
		return s.lastConstantDelayTime(every.Delay, after, until)
	}
	for _, span := range []time.Duration{time.Hour, 24 * time.Hour, 32 * 24 * time.Hour, 400 * 24 * time.Hour, until.Sub(after)} {
		from := until.Add(-span)
		if from.Before(after) {
			from = after
		}
		var found time.Time
		for t := s.nextTime(from); !t.IsZero() && !t.After(until); t = s.nextTime(t) {
			found = t
		}
		if !found.IsZero() || from.Equal(after) {
			return found
		}
	}
	return time.Time{}
}

// lastConstantDelayTime returns the last time in (after, until] of a schedule with a
// constant delay, which counts from the previous time.
func (s schedule) lastConstantDelayTime(delay time.Duration, after, until time.Time) time.Time {
	first := s.nextTime(after)
	if first.After(until) {
		return time.Time{}
	}
	return first.Add(until.Sub(first) / delay * delay)
}

// maxMissedTimes is the number of missed times above which a wrong clock is more likely
// than a manager that was down.
const maxMissedTimes = 100

// hasMissedMany reports whether more than maxMissedTimes times are in (after, until].
func (s schedule) hasMissedMany(after, until time.Time) bool {
	t := after
	for range maxMissedTimes + 1 {
		if t = s.nextTime(t); t.IsZero() || t.After(until) {
			return false
		}
	}
	return true
}
