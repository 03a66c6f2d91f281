package window

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // container images have no time zone database

	"github.com/robfig/cron/v3"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// The limits of the spec of a window.
const (
	MinDuration = time.Minute
	MaxDuration = 168 * time.Hour
	// MaxExceptions is the number of exceptions.
	MaxExceptions = 100
)

// horizon is how far into the future a closing time is computed.
const horizon = 32 * 24 * time.Hour

// maxSteps bounds the openings that one computation visits.
const maxSteps = 2000

// fields has no seconds, and no names such as @every: their openings would depend on the time of the start.
var fields = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)

// window is a MaintenanceWindow that was parsed.
type window struct {
	name     string
	selector map[string]string
	// defect is why the spec cannot be used. The window never opens then. Nil: it can.
	defect     error
	opens      cron.Schedule
	zone       *time.Location
	duration   time.Duration
	exceptions []span // by start
}

// span is a time from a start up to, and without, an end.
type span struct{ from, until time.Time }

func (s span) contains(t time.Time) bool { return !t.Before(s.from) && t.Before(s.until) }

// newWindow parses a MaintenanceWindow.
func newWindow(w *v1alpha1.MaintenanceWindow) *window {
	out := &window{name: w.Name, selector: w.Spec.RobotSelector, duration: w.Spec.Duration.Value()}
	for _, e := range w.Spec.Exceptions {
		out.exceptions = append(out.exceptions, span{e.From.Time, e.Until.Time})
	}
	slices.SortFunc(out.exceptions, func(a, b span) int { return a.from.Compare(b.from) })
	out.defect = errors.Join(out.parseSchedule(&w.Spec), checkTimes(&w.Spec))
	return out
}

// parseSchedule sets when the window opens.
func (w *window) parseSchedule(spec *v1alpha1.MaintenanceWindowSpec) (err error) {
	if w.zone, err = time.LoadLocation(spec.TimeZone); err != nil || strings.EqualFold(spec.TimeZone, "local") {
		return fmt.Errorf("spec.timeZone: unknown time zone %q; use a name such as Europe/Berlin", spec.TimeZone)
	}
	if strings.Contains(spec.Schedule, "=") {
		return fmt.Errorf("spec.schedule: %q contains a time zone; set spec.timeZone instead", spec.Schedule)
	}
	if w.opens, err = fields.Parse(spec.Schedule); err != nil {
		return fmt.Errorf("spec.schedule: invalid schedule %q: %w; specify minute, hour, day of the month, month and day of the week, such as 0 2 * * 1-5", spec.Schedule, err)
	}
	return nil
}

// checkTimes returns an error if the duration or the exceptions are out of bounds. Admission refuses these.
func checkTimes(spec *v1alpha1.MaintenanceWindowSpec) error {
	if d := spec.Duration.Value(); d < MinDuration || d > MaxDuration {
		return fmt.Errorf("spec.duration: must be from 1m to 168h, is %s", d)
	}
	if len(spec.Exceptions) > MaxExceptions {
		return fmt.Errorf("spec.exceptions: at most %d are allowed, there are %d", MaxExceptions, len(spec.Exceptions))
	}
	for i := range spec.Exceptions {
		if e := &spec.Exceptions[i]; !e.From.Before(&e.Until) {
			return fmt.Errorf("spec.exceptions[%d]: from must be before until", i)
		}
	}
	return nil
}

// nextOpening returns the first time after t at which the schedule opens the window. Zero if there is none within
// five years, as for February 31.
func (w *window) nextOpening(t time.Time) time.Time { return w.opens.Next(t.In(w.zone)) }

// isScheduled reports whether the schedule has opened the window at t, without exceptions.
func (w *window) isScheduled(t time.Time) bool {
	opened := w.nextOpening(t.Add(-w.duration))
	return !opened.IsZero() && !opened.After(t)
}

// findException returns the exception that contains t, or nil.
func (w *window) findException(t time.Time) *span {
	for i := range w.exceptions {
		if w.exceptions[i].contains(t) {
			return &w.exceptions[i]
		}
	}
	return nil
}

func (w *window) isOpen(t time.Time) bool {
	return w.defect == nil && w.isScheduled(t) && w.findException(t) == nil
}

// closingTime returns when a window that is open at t closes. Openings that overlap or follow at once are one. It
// takes steps from a budget, and at its end returns a time at which the window may still be open.
func (w *window) closingTime(t time.Time, steps *int) time.Time {
	end, limit := t, w.nextException(t)
	for ; *steps > 0 && end.Before(limit); *steps-- {
		opened := w.lateOpening(end)
		if opened.IsZero() {
			return end
		}
		end = opened.Add(w.duration)
	}
	if end.After(limit) {
		return limit
	}
	return end
}

// nextException returns when the next exception after t starts, at most horizon and the longest opening later.
func (w *window) nextException(t time.Time) time.Time {
	for _, e := range w.exceptions {
		if e.from.After(t) {
			return e.from
		}
	}
	return t.Add(horizon + MaxDuration)
}

// lateOpening returns an opening of the schedule after which the window is still open at t: the last one, or
// one that is at most about twice as long ago. Zero if there is none. The schedule can only be searched forward.
func (w *window) lateOpening(t time.Time) time.Time {
	for back := time.Minute; ; back *= 2 {
		back = min(back, w.duration)
		if opened := w.nextOpening(t.Add(-back)); !opened.IsZero() && !opened.After(t) {
			return opened
		}
		if back == w.duration {
			return time.Time{}
		}
	}
}

// openingTime returns when a window that is closed at t opens next. Zero if it never does.
func (w *window) openingTime(t time.Time) time.Time {
	if w.defect != nil {
		return time.Time{}
	}
	for range maxSteps {
		if e := w.findException(t); e != nil {
			if t = e.until; w.isOpen(t) {
				return t
			}
			continue
		}
		if t = w.nextOpening(t); t.IsZero() || w.findException(t) == nil {
			return t
		}
	}
	return time.Time{}
}
