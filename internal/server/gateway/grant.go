package gateway

import (
	"time"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// ackGrant is the period for which this server may acknowledge the heartbeats of a robot.
//
// A robot's self-stop deadline counts from the last acknowledged heartbeat. The manager counts from
// when it sees the robot's time in its HeartbeatSlice change, and adds the length of the period. A
// later acknowledgment could let a replacement start while the robot still runs the task, so the
// period is measured by a clock that nothing sets, and that runs while the machine sleeps.
type ackGrant struct {
	time   time.Time     // in the slice, as this server has written it; zero: never
	from   time.Duration // the machine's uptime before that write
	period time.Duration
}

// grantPeriod returns how long a grant lasts, with the precision of the API.
func grantPeriod(offlineAfter time.Duration) time.Duration {
	return (offlineAfter / 3).Truncate(time.Microsecond)
}

// covers reports whether a heartbeat may be acknowledged at an uptime, if that time is stored.
func (g ackGrant) covers(stored time.Time, uptime time.Duration) bool {
	return !g.time.IsZero() && g.time.Equal(stored) && uptime-g.from <= g.period
}

// awaitsAck reports whether the robot's last heartbeat is to be acknowledged.
func (w *robotState) awaitsAck() bool { return w.heartbeatSeq > 0 && w.heartbeatSeq != w.ackedSeq }

// coversHeartbeat reports whether a heartbeat that has been received may be acknowledged, by the
// status that is stored: only a manager that finds the robot's slice there counts by the slice.
func (w *robotState) coversHeartbeat(s robotv1.RobotStatus) bool {
	return w.isCovered && w.slice == s.HeartbeatSlice
}
