package gateway

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// sweepRobots periodically checks the robots whose check is due: unconfirmed last wills, robots that
// have become silent, and heartbeats that are due to be written.
func (g *Gateway) sweepRobots(ctx context.Context) {
	tick := time.NewTicker(max(10*time.Millisecond, min(time.Second, g.cfg.OfflineAfter/20)))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			g.sweepRobotsOnce(g.now())
		}
	}
}

func (g *Gateway) sweepRobotsOnce(now time.Time) {
	g.reportAccepted(now)
	g.sweepRestoration(now)
	g.robots.forgetUnknown(func(id string) bool { return g.objects.robot(id) != nil }, now, g.cfg.OfflineAfter)
	for _, id := range g.checks.takeDue(now) {
		if r := g.objects.robot(id); r != nil {
			g.checkRobot(now, id, r)
		}
	}
	for _, k := range g.slices.due() {
		g.sliceQueue.Add(k)
	}
	g.m.robots.Set(float64(g.objects.connectedRobots()))
	g.m.brokerUp.Set(boolGauge(g.mqtt.checkUp() == nil))
}

// checkRobot writes a robot if it has become silent or its heartbeat is due, and schedules the next
// check. Robots whose object changes are checked at once, so few checks are needed between.
func (g *Gateway) checkRobot(now time.Time, id string, r *robotv1.Robot) {
	if g.detectDisconnect(now, id, r) || isHeartbeatDue(r.Status, g.robots.stateOf(id), g.statusPeriod(id)) {
		g.robotQueue.Add(id)
	}
	w := g.robots.stateOf(id)
	g.checks.schedule(id, w.nextCheck(now, g.listenedFor(), g.cfg.OfflineAfter))
}

// listenedFor returns for how long this server has received messages.
func (g *Gateway) listenedFor() time.Duration { return g.uptime() - time.Duration(g.syncedAt.Load()) }

// boolGauge returns a bool as the value of a gauge.
func boolGauge(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// detectDisconnect marks a robot as disconnected if it is silent for too long, and
// reports whether it did. Only connected robots are checked, and only after this server
// has listened for long enough.
func (g *Gateway) detectDisconnect(now time.Time, id string, r *robotv1.Robot) (gone bool) {
	listened := g.listenedFor()
	connected := meta.IsStatusConditionTrue(r.Status.Conditions, robotv1.ConditionConnected)
	g.robots.updateState(id, true, func(w *robotState) {
		gone = w.confirmLastWill(now) || connected && w.markSilent(now, listened, g.cfg.OfflineAfter)
	})
	return gone
}
