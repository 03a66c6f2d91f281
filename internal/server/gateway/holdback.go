package gateway

import "time"

const (
	// holdBackFor is how long a legacy agent must have ended no task before it gets a
	// list that can wait. It forgets ended tasks and runs unknown tasks of a list, so a
	// list that crosses with the report of an end would run the task again.
	holdBackFor = time.Second
	// holdBackLimit bounds the delay, from the first end that the list does not contain.
	holdBackLimit = 10 * time.Second
)

// holdBackLocked delays a legacy agent's list until its ends have paused. An empty list,
// and one that is due already, is not delayed.
func (l *taskLists) holdBackLocked(robotID string) {
	now, c := l.now(), l.stateLocked(robotID)
	if c.firstEnd.IsZero() {
		c.firstEnd = now
	}
	c.heldUntil = now.Add(l.holdBack)
	if limit := c.firstEnd.Add(holdBackLimit); limit.Before(c.heldUntil) {
		c.heldUntil = limit
	}
	if l.dirty[robotID].After(now) {
		delete(l.dirty, robotID) // replaced by a later time
	}
	if len(l.activeTasksLocked(robotID)) == 0 {
		l.markDirtyLocked(robotID, 0)
		return
	}
	l.markDirtyLocked(robotID, l.holdBack)
}

// heldBackUntilLocked returns when a legacy agent's list is due that can wait. New tasks
// are dispatched, so such a list is never urgent.
func (l *taskLists) heldBackUntilLocked(robotID string) time.Time {
	now := l.now()
	if c := l.stateLocked(robotID); c.heldUntil.After(now) {
		return c.heldUntil
	}
	return now.Add(l.holdBack)
}
