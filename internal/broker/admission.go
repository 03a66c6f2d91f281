package broker

import (
	"maps"
	"net"
	"sync"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"
	"golang.org/x/time/rate"

	"k8s4r.io/k8s4r/internal/protocol/acl"
)

const (
	// maxTurnWait is how long a robot waits for its turn on an open connection. Clients wait for
	// CONNACK for ten seconds.
	maxTurnWait = 4 * time.Second
	// turnValidity is how long a turn is kept for a robot that comes late.
	turnValidity = time.Minute
)

// admission spreads the robots that connect after an outage over time, because each of them then
// registers and requests its tasks. Only robots that are authenticated take turns, so that other
// clients cannot delay them.
type admission struct {
	rate *rate.Limiter

	mu        sync.Mutex
	turns     map[string]time.Time // of robots that were asked to come back, by name
	cleanedAt time.Time
}

func newAdmission(l Limits) *admission {
	return &admission{rate: rate.NewLimiter(rate.Limit(l.AdmitRate), l.AdmitBurst), turns: map[string]time.Time{}}
}

// takeTurn returns how long a robot has to wait. If that is longer than maxTurnWait, the robot must
// come back, and gets the same turn then.
func (a *admission) takeTurn(robot string, now time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	turn, ok := a.turns[robot]
	if !ok || now.After(turn.Add(turnValidity)) {
		turn = now.Add(a.rate.ReserveN(now, 1).DelayFrom(now))
	}
	if turn.Sub(now) <= maxTurnWait {
		delete(a.turns, robot)
	} else {
		a.dropMissedLocked(now)
		a.turns[robot] = turn
	}
	return turn.Sub(now)
}

// dropMissedLocked drops the turns of robots that did not come back, once in turnValidity.
func (a *admission) dropMissedLocked(now time.Time) {
	if now.Sub(a.cleanedAt) < turnValidity {
		return
	}
	a.cleanedAt = now
	maps.DeleteFunc(a.turns, func(_ string, turn time.Time) bool { return now.After(turn.Add(turnValidity)) })
}

// awaitAdmission blocks a robot until its turn. If that is too far away, it fails with ErrServerBusy.
func (c *conn) awaitAdmission() error {
	if c.isAdmitted || c.identity.Role != acl.Robot {
		return nil
	}
	c.isAdmitted = true
	wait := c.hub.admission.takeTurn(c.identity.Name, c.hub.now())
	if wait <= 0 {
		return nil
	}
	if wait > maxTurnWait {
		c.retryAfter = wait
		c.hub.postponed.Add(1)
		return packets.ErrServerBusy
	}
	turn := time.NewTimer(wait)
	defer turn.Stop()
	select {
	case <-turn.C:
		return nil
	case <-c.closing:
		return net.ErrClosed
	}
}
