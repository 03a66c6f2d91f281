package scheduler

import (
	"time"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/window"
)

// windowIndex holds the maintenance windows, which protect tasks from preemption while they are closed. The zero value
// holds none. It is guarded by Scheduler.mu.
type windowIndex struct {
	objects  map[key]*v1alpha1.MaintenanceWindow
	calendar *window.Calendar // of objects; nil: they have changed
	now      time.Time        // of this cycle
	view     *window.View     // at now
	// opensAt is when the first protection of a task from a demand that waits ends by time: its window opens, or its
	// pause after a withdrawn order is over. Zero: none does.
	opensAt time.Time
}

// begin starts a cycle.
func (x *windowIndex) begin(now time.Time) {
	x.now, x.view, x.opensAt = now, x.currentCalendar().At(now), time.Time{}
}

// currentCalendar returns the calendar of the observed windows.
func (x *windowIndex) currentCalendar() *window.Calendar {
	if x.calendar == nil {
		all := make([]v1alpha1.MaintenanceWindow, 0, len(x.objects))
		for _, w := range x.objects {
			all = append(all, *w)
		}
		x.calendar = window.NewCalendar(all)
	}
	return x.calendar
}

// viewAt sets the time for which tasks are protected, without a cycle, and returns a function that restores what the
// last cycle has left: its wake-up must not be lost.
func (x *windowIndex) viewAt(now time.Time) (restore func()) {
	lastNow, lastView, opensAt := x.now, x.view, x.opensAt
	x.now, x.view = now, x.currentCalendar().At(now)
	return func() { x.now, x.view, x.opensAt = lastNow, lastView, opensAt }
}

// hasOpened reports whether a protection of a task has ended by time, and forgets it.
func (x *windowIndex) hasOpened(now time.Time) bool {
	if x.opensAt.IsZero() || now.Before(x.opensAt) {
		return false
	}
	x.opensAt = time.Time{}
	return true
}

// addOpening records when a protection of a task ends by time.
func (x *windowIndex) addOpening(at time.Time) {
	if !at.IsZero() && (x.opensAt.IsZero() || at.Before(x.opensAt)) {
		x.opensAt = at
	}
}

// isProtected reports whether a task runs and may not be interrupted in this cycle: its robot is outside its maintenance
// windows, people hold it, or an order to leave was withdrawn a moment ago. Another victim may be able to leave now.
func (c *clusterState) isProtected(e *taskEntry) bool {
	r := c.robots.byID[e.robot]
	if !e.dispatched || e.leaving || r == nil {
		return false
	}
	if c.windows.now.Before(e.stayUntil) {
		c.windows.addOpening(e.stayUntil)
		return true
	}
	limits := r.limits()
	i := c.windows.view.Interruption(&limits, string(e.uid), window.WindowsAndHolds)
	if i.Opens() {
		c.windows.addOpening(i.State.OpensAt)
	}
	return !i.IsAllowed()
}

// updateWindow stores a new version of a MaintenanceWindow.
func (c *clusterState) updateWindow(w *v1alpha1.MaintenanceWindow) {
	k := keyOf(w)
	if last := c.windows.objects[k]; last != nil && last.UID == w.UID && last.Generation == w.Generation {
		return // only its status has changed
	}
	if c.windows.objects == nil {
		c.windows.objects = map[key]*v1alpha1.MaintenanceWindow{}
	}
	c.windows.objects[k], c.windows.calendar = w, nil
	c.dirty.set()
}

// removeWindow removes a deleted MaintenanceWindow.
func (c *clusterState) removeWindow(k key) {
	delete(c.windows.objects, k)
	c.windows.calendar = nil
	c.dirty.set()
}
