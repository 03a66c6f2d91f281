package runner

import "time"

// defaultContactTimeout is three of the usual heartbeats.
const defaultContactTimeout = 90 * time.Second

// SetConnected records whether there is a connection to the server.
func (r *Runner) SetConnected(connected bool) {
	r.isConnected.Store(connected)
	r.NotifyContact()
}

// NotifyContact has the runner look again whether the robot has contact, after the server has
// acknowledged a heartbeat.
func (r *Runner) NotifyContact() {
	select {
	case r.contacts <- struct{}{}:
	default: // it has not looked since the last call
	}
}

// hasContact reports whether the server can decide about this robot's tasks: it is connected and
// acknowledges heartbeats.
func (r *Runner) hasContact() bool {
	return r.isConnected.Load() && !r.lastSeen.IsPastDeadline(r.contactTimeout)
}
