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
	view     *window.View     // of this cycle
	// opensAt is when the first window opens that protects a task from a demand that waits. Zero: none does.
	opensAt time.Time
}

// begin starts a cycle.
func (x *windowIndex) begin(now time.Time) {
	if x.calendar == nil {
		all := make([]v1alpha1.MaintenanceWindow, 0, len(x.objects))
		for _, w := range x.objects {
			all = append(all, *w)
		}
		x.calendar = window.NewCalendar(all)
	}
	x.view, x.opensAt = x.calendar.At(now), time.Time{}
}

// hasOpened reports whether a window has opened that protected a task, and forgets it.
func (x *windowIndex) hasOpened(now time.Time) bool {
	if x.opensAt.IsZero() || now.Before(x.opensAt) {
		return false
	}
	x.opensAt = time.Time{}
	return true
}

// addOpening records when a window opens that protects a task.
func (x *windowIndex) addOpening(at time.Time) {
	if !at.IsZero() && (x.opensAt.IsZero() || at.Before(x.opensAt)) {
		x.opensAt = at
	}
}

// isProtected reports whether a task runs and may not be interrupted in this cycle: its robot is outside its maintenance
// windows, or people hold it.
func (c *clusterState) isProtected(e *taskEntry) bool {
	r := c.robots.byID[e.robot]
	if !e.dispatched || e.leaving || r == nil {
		return false
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
