package window

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/robotattr"
)

// State is whether the tasks of a robot, or of those of one window, may be interrupted at a time.
type State struct {
	// IsLimited reports whether any window applies. If not, IsOpen is true and the other fields are zero.
	IsLimited bool
	IsOpen    bool
	// Window is the name of the window that is open, or that opens next, or that cannot be used.
	Window string
	// ClosesAt is when the last window closes. Zero if all are closed, or if they stay open for more than a month.
	ClosesAt time.Time
	// OpensAt is when the next window opens. Zero if one is open, or if none ever opens.
	OpensAt time.Time
	// NextChange is when the state may change by time. Zero: never.
	NextChange time.Time
	// Defect is why a window never opens whose spec cannot be used. Nil if a window is open or opens later.
	Defect error
}

// Calendar holds the maintenance windows of a cluster. It does not change.
type Calendar struct {
	byNamespace map[string][]*window // by name
}

// NewCalendar parses maintenance windows. A window whose spec cannot be used is never open.
func NewCalendar(all []v1alpha1.MaintenanceWindow) *Calendar {
	c := &Calendar{byNamespace: map[string][]*window{}}
	for i := range all {
		namespace := all[i].Namespace
		c.byNamespace[namespace] = append(c.byNamespace[namespace], newWindow(&all[i]))
	}
	for _, windows := range c.byNamespace {
		slices.SortFunc(windows, func(a, b *window) int { return cmp.Compare(a.name, b.name) })
	}
	return c
}

// StateOf returns the state of one window, as if no other existed.
func StateOf(w *v1alpha1.MaintenanceWindow, now time.Time) State {
	return stateOf([]*window{newWindow(w)}, now)
}

// stateOf returns the state of the robots that have these windows: they may be interrupted while one is open.
func stateOf(windows []*window, now time.Time) State {
	if len(windows) == 0 {
		return State{IsOpen: true}
	}
	s := State{IsLimited: true}
	if w := findOpen(windows, now); w != nil {
		s.IsOpen, s.Window, s.NextChange = true, w.name, closingTime(windows, now)
		if s.NextChange.Sub(now) <= horizon {
			s.ClosesAt = s.NextChange
		}
		return s
	}
	for _, w := range windows {
		if at := w.openingTime(now); !at.IsZero() && (s.OpensAt.IsZero() || at.Before(s.OpensAt)) {
			s.OpensAt, s.Window = at, w.name
		}
	}
	s.NextChange = s.OpensAt
	if s.OpensAt.IsZero() {
		s.Window, s.Defect = findDefect(windows)
	}
	return s
}

func findOpen(windows []*window, t time.Time) *window {
	for _, w := range windows {
		if w.isOpen(t) {
			return w
		}
	}
	return nil
}

// closingTime returns when all windows are closed that follow one another from t on. After the horizon, or after very
// many short openings, it returns a time at which one may still be open.
func closingTime(windows []*window, t time.Time) time.Time {
	end := t
	for steps := maxSteps; steps > 0; steps-- {
		w := findOpen(windows, end)
		if w == nil {
			break
		}
		if end = w.closingTime(end, &steps); end.Sub(t) > horizon {
			break
		}
	}
	return end
}

// findDefect returns the first window whose spec cannot be used, or else the first one, which never opens.
func findDefect(windows []*window) (string, error) {
	for _, w := range windows {
		if w.defect != nil {
			return w.name, w.defect
		}
	}
	return windows[0].name, nil
}

// View answers for one time. It is not safe for concurrent use.
type View struct {
	calendar *Calendar
	now      time.Time
	states   map[string]State // by namespace and indexes of windows
	// NextChange is when an answer that was given changes by time. Zero: never.
	NextChange time.Time
}

// At returns what the calendar says about a time. The calendar may be nil.
func (c *Calendar) At(now time.Time) *View {
	return &View{calendar: c, now: now, states: map[string]State{}}
}

// StateOf returns the state of a robot of a namespace with these labels.
func (v *View) StateOf(namespace string, labels map[string]string) State {
	if v.calendar == nil {
		return stateOf(nil, v.now)
	}
	var key strings.Builder
	key.WriteString(namespace)
	var windows []*window
	for i, w := range v.calendar.byNamespace[namespace] {
		if robotattr.HasLabels(labels, w.selector) {
			windows = append(windows, w)
			key.WriteString("/" + strconv.Itoa(i))
		}
	}
	s, known := v.states[key.String()]
	if !known {
		s = stateOf(windows, v.now)
		v.states[key.String()] = s
	}
	if at := s.NextChange; !at.IsZero() && (v.NextChange.IsZero() || at.Before(v.NextChange)) {
		v.NextChange = at
	}
	return s
}
