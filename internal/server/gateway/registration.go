package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/platform/jointoken"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

var (
	errTooManyPending = errors.New("too many unknown robots register at the same time")
	// errStale requests another try with the object that was read again.
	errStale = errors.New("the object has changed")
)

// syncRobot writes what the robot has reported to its Robot, and answers its
// registration once the manager has approved it.
func (g *Gateway) syncRobot(ctx context.Context, id string) error {
	r := g.objects.robot(id)
	g.assignSlice(r)
	w := g.stateOf(id)
	token, refused, err := g.checkToken(ctx, id, w, r)
	if refused || err != nil {
		return err
	}
	if r != nil && g.needsToken(w) {
		g.sendAll(id, w.protocol) // before the answer, as in register
	}
	s := planRobot(g.now(), id, w, r, g.statusPeriod(id))
	if s.answer != nil {
		// Sent before the writes, because the robot is approved already.
		g.sendResponse(id, s.answer)
	}
	if s.retryAfter > 0 {
		g.robotQueue.AddAfter(id, s.retryAfter)
		g.recordLimit(id, limitDevice)
	}
	if s.changesRobot() && !g.limits.robotWrites.Allow(id, g.now()) {
		g.robotQueue.AddAfter(id, robotWritePause)
		g.recordLimit(id, limitRobotWrites)
		return nil
	}
	if s.create {
		return g.createRobot(ctx, id, w, token)
	}
	if s.labels != nil {
		return g.updateRobotLabels(ctx, r, *s.labels)
	}
	if s.status != nil {
		if err := g.writeRobotStatus(ctx, r, s); err != nil {
			return err
		}
		r = g.objects.robot(id)
	}
	return g.sendPrefetch(ctx, id, r)
}

func (g *Gateway) sendResponse(id string, a *wire.Response) {
	a.StoresRuns = a.Success && g.storesRuns()
	if g.sendMessage(id, wire.KindResponse, a) {
		g.robots.updateState(id, true, func(w *robotState) {
			w.awaitsResponse, w.sentUnlock, w.sentUnlockAt = false, a.UnlockMaintenance, g.now()
		})
		if a.Success {
			g.attributes.resendTasks(id)
		}
	}
}

// storesRuns reports whether this server stores the records of runs.
func (g *Gateway) storesRuns() bool { return g.logs.canStore() && g.mqtt.receivesRuns.Load() }

// createRobot creates the Robot. Its status needs a second write.
func (g *Gateway) createRobot(ctx context.Context, id string, w robotState, token jointoken.Token) error {
	r := newRobot(cmp.Or(token.Namespace, g.cfg.RobotNamespace), id, token.Labels, w)
	err := g.client.Create(ctx, r)
	g.m.robotWrites.WithLabelValues(resultLabel(err)).Inc()
	if apierrors.IsAlreadyExists(err) {
		return g.rereadRobot(ctx, r)
	}
	if err != nil {
		return fmt.Errorf("create robot %s: %w", id, err)
	}
	g.handleRobotUpdate(r)
	g.robotQueue.Add(id) // now its status
	return nil
}

func (g *Gateway) updateRobotLabels(ctx context.Context, r *robotv1.Robot, now robotLabels) error {
	next := r.DeepCopy()
	now.applyTo(next)
	if err := g.handleRobotWrite(ctx, next, g.client.Update(ctx, next), "label robot"); err != nil {
		return err
	}
	g.robotQueue.Add(r.Name) // now its status
	return nil
}

// writeRobotStatus writes the planned status.
func (g *Gateway) writeRobotStatus(ctx context.Context, r *robotv1.Robot, s robotActions) error {
	next := r.DeepCopy()
	next.Status = *s.status
	if err := g.handleRobotWrite(ctx, next, g.client.Status().Update(ctx, next), "write status of robot"); err != nil {
		return err
	}
	if !equality.Semantic.DeepEqual(r.Status.DeviceInfo, next.Status.DeviceInfo) {
		g.robots.updateState(r.Name, true, func(w *robotState) { w.deviceWrittenAt = g.now() })
	}
	g.ackHeartbeat(next.Name, next)
	if s.warning {
		g.warn(next, "NotResponsive", messageUnresponsive)
	}
	return nil
}

// handleRobotWrite stores the result of a write, or reads the Robot again after a
// conflict.
func (g *Gateway) handleRobotWrite(ctx context.Context, next *robotv1.Robot, err error, action string) error {
	g.m.robotWrites.WithLabelValues(resultLabel(err)).Inc()
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return g.rereadRobot(ctx, next)
	case err != nil:
		return fmt.Errorf("%s %s: %w", action, next.Name, err)
	}
	g.handleRobotUpdate(next)
	return nil
}

// rereadRobot reads a Robot without the cache. It returns errStale to request another
// try.
func (g *Gateway) rereadRobot(ctx context.Context, r *robotv1.Robot) error {
	var now robotv1.Robot
	err := g.apiReader.Get(ctx, client.ObjectKeyFromObject(r), &now)
	switch {
	case apierrors.IsNotFound(err):
		g.objects.removeRobot(r)
	case err != nil:
		return fmt.Errorf("read robot %s again: %w", r.Name, err)
	default:
		g.handleRobotUpdate(&now)
	}
	return errStale
}
