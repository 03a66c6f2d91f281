package gateway

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// ackGrant is the period for which this server may acknowledge the heartbeats of a robot.
//
// A robot's self-stop deadline counts from the last acknowledged heartbeat. The manager counts from
// when it sees status.acknowledgedUntil change, and adds the length of the period. A later
// acknowledgment could let a replacement start while the robot still runs the task, so the period
// is measured by a clock that nothing sets, and that runs while the machine sleeps.
type ackGrant struct {
	until  time.Time     // status.acknowledgedUntil as this server has written it; zero: never
	from   time.Duration // the machine's uptime before that write
	period time.Duration
}

// grantPeriod returns how long a grant lasts, with the precision of the API.
func grantPeriod(offlineAfter time.Duration) time.Duration {
	return (offlineAfter / 3).Truncate(time.Microsecond)
}

// awaitsAck reports whether the robot's last heartbeat is to be acknowledged.
func (w *robotState) awaitsAck() bool { return w.heartbeatSeq > 0 && w.heartbeatSeq != w.ackedSeq }

// coversHeartbeat reports whether a heartbeat that has been received may be acknowledged, by the
// status that is stored.
func (w *robotState) coversHeartbeat(s robotv1.RobotStatus) bool {
	at := s.AcknowledgedUntil
	return at != nil && at.Time.Equal(w.grant.until) && w.uptime-w.grant.from <= w.grant.period
}

// nextGrant returns status.acknowledgedUntil for a robot that was last seen at that time. Unless the
// stored grant still holds, it differs from it even if the clock was set back, so that the manager
// counts again from then.
func (w *robotState) nextGrant(now *robotv1.RobotStatus, lastSeen time.Time, offlineAfter time.Duration) *metav1.MicroTime {
	until := lastSeen.Add(grantPeriod(offlineAfter))
	if at := now.AcknowledgedUntil; at != nil && at.Time.Equal(until) && !w.coversHeartbeat(*now) {
		until = until.Add(time.Microsecond)
	}
	return &metav1.MicroTime{Time: until}
}

// recordGrant records that a status was written that was planned from the state w.
func (r *robotStates) recordGrant(id string, w robotState, s robotv1.RobotStatus, offlineAfter time.Duration) {
	at := s.AcknowledgedUntil
	if at == nil {
		return
	}
	r.updateState(id, true, func(now *robotState) {
		if !at.Time.Equal(now.grant.until) {
			now.grant = ackGrant{until: at.Time, from: w.uptime, period: grantPeriod(offlineAfter)}
		}
	})
}
