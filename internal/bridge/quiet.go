package bridge

import "time"

const (
	// quietFor is how long a document agent must have ended nothing before it
	// is sent a list that can wait. It forgets a task with its end, and runs
	// what a list names that it does not know: so a list that crosses with the
	// report of an end brings the task back to life. Ends come in bursts.
	quietFor = time.Second
	// quietLimit bounds the wait for a pause, from the first end that the list
	// is to leave out.
	quietLimit = 10 * time.Second
)

// hush puts a document agent's list off until its ends have paused. One that
// names nothing brings nothing back, and is due at once; one that is due
// already stays so.
func (l *lists) hush(robotID string) {
	now, c := l.now(), l.clock(robotID)
	if c.ends.IsZero() {
		c.ends = now
	}
	c.quiet = now.Add(quietFor)
	if limit := c.ends.Add(quietLimit); limit.Before(c.quiet) {
		c.quiet = limit
	}
	if l.dirty[robotID].After(now) {
		delete(l.dirty, robotID) // asked for again, later
	}
	if len(l.unfinished(robotID)) == 0 {
		l.ask(robotID, 0)
		return
	}
	l.ask(robotID, quietFor)
}

// afterEnds is when a list for a document agent is due that can wait. The agent
// knows by the dispatch what is new to its list, so that is never urgent, and
// the fewer lists go out, the fewer cross with an end.
func (l *lists) afterEnds(robotID string) time.Time {
	now := l.now()
	if c := l.clock(robotID); c.quiet.After(now) {
		return c.quiet
	}
	return now.Add(quietFor)
}
