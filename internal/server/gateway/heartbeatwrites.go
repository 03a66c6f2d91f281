package gateway

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// assignRobots assigns the robots whose status names a slice, if they are in none: otherwise the
// manager would wait for their entries. It follows the first lists of robots and slices.
func (g *Gateway) assignRobots() {
	g.slices.releaseUnknown()
	for _, id := range g.objects.robotIDs() {
		r := g.objects.robot(id)
		if r == nil || r.Status.HeartbeatSlice == "" {
			continue
		}
		g.slices.assign(r)
		if name, _ := g.slices.coverageOf(id, 0); name != r.Status.HeartbeatSlice {
			g.robotQueue.Add(id)
		}
	}
}

// assignSlice assigns a robot that has sent a message to a slice. If r is nil, it does nothing.
func (g *Gateway) assignSlice(r *robotv1.Robot) {
	if r != nil && !g.robots.contactOf(r.Name).lastSeen.IsZero() {
		g.slices.assign(r)
	}
}

// stateOf returns a copy of a robot's state, with what its slice covers.
func (g *Gateway) stateOf(id string) robotState {
	w := g.robots.stateOf(id)
	w.slice, w.isCovered = g.slices.coverageOf(id, w.uptime)
	return w
}

// syncSlice writes the times of a slice, and acknowledges the heartbeats that they cover. Each write
// is a compare-and-set on the version that it is based on.
func (g *Gateway) syncSlice(ctx context.Context, k types.NamespacedName) error {
	w := g.slices.planWrite(k)
	if w == nil {
		return nil
	}
	err := g.writeSlice(ctx, w)
	g.m.sliceWrites.WithLabelValues(resultLabel(err)).Inc()
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err), apierrors.IsAlreadyExists(err):
		return g.rereadSlice(ctx, w)
	case err != nil:
		return fmt.Errorf("write heartbeat slice %s: %w", k, err)
	}
	g.slices.recordWrite(w)
	for id := range w.changed {
		if r := g.objects.robot(id); r != nil {
			g.ackHeartbeat(id, r)
		}
	}
	return nil
}

func (g *Gateway) writeSlice(ctx context.Context, w *sliceWrite) error {
	switch {
	case w.deletes:
		return g.client.Delete(ctx, w.object, client.Preconditions{UID: &w.object.UID, ResourceVersion: &w.object.ResourceVersion})
	case w.object.ResourceVersion == "":
		return g.client.Create(ctx, w.object)
	}
	return g.client.Update(ctx, w.object)
}

// rereadSlice reads a slice without the cache. It returns errStale to request another try.
func (g *Gateway) rereadSlice(ctx context.Context, w *sliceWrite) error {
	var now robotv1.HeartbeatSlice
	err := g.apiReader.Get(ctx, w.key, &now)
	switch {
	case apierrors.IsNotFound(err):
		g.slices.remove(w.object)
	case err != nil:
		return fmt.Errorf("read heartbeat slice %s again: %w", w.key, err)
	default:
		g.slices.store(&now)
	}
	return errStale
}

// requestSliceWrite requests a write for a heartbeat that cannot be acknowledged yet.
func (g *Gateway) requestSliceWrite(id string) {
	if k, after, ok := g.slices.urgentWrite(id); ok {
		g.sliceQueue.AddAfter(k, after)
	}
}

// statusPeriod returns the time between two writes of a robot's status that only change its last
// heartbeat.
func (g *Gateway) statusPeriod(id string) time.Duration {
	at := g.formerManagerAt.Load()
	readsSlices := at == 0 || g.uptime()-time.Duration(at) > formerManagerFor
	return statusPeriod(id, g.cfg.OfflineAfter, readsSlices)
}

// formerManagerFor is how long after a write of a manager that does not read slices the statuses are
// written for it.
const formerManagerFor = time.Hour

// detectFormerManager notices a manager of an earlier version. It does not know
// status.heartbeatSlice, so its writes of a status remove the field.
func (g *Gateway) detectFormerManager(was, is *robotv1.Robot) {
	if was == nil || was.UID != is.UID || was.Status.HeartbeatSlice == "" || is.Status.HeartbeatSlice != "" {
		return
	}
	if g.formerManagerAt.Swap(int64(g.uptime())) == 0 {
		g.log.Info("a program of an earlier version writes the status of robots; upgrade the manager: until then, heartbeats cost more writes", "robot", is.Name)
	}
}
