package bridge

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/jointoken"
	"k8s4r.io/k8s4r/internal/wire"
)

var (
	errTooManyStrangers = errors.New("too many unknown robots register at once")
	// errStale asks for another try on what has been read anew.
	errStale = errors.New("it has changed meanwhile")
)

// syncRobot brings the Robot object up to the robot's last word, and answers
// its registration once the manager has approved it.
func (b *Bridge) syncRobot(ctx context.Context, id string) error {
	w, r := b.robots.get(id), b.view.robot(id)
	token, refused, err := b.checkToken(ctx, id, w, r)
	if refused || err != nil {
		return err
	}
	if r != nil && b.judgesToken(w) {
		b.tellAll(id, w.protocol) // before the answer, as in register
	}
	s := planRobot(b.now(), id, w, r, b.cfg.OfflineAfter)
	if s.answer != nil {
		// First, because it waits for nothing: the robot is approved already.
		b.answer(id, s.answer)
	}
	if s.create {
		return b.createRobot(ctx, id, w, token)
	}
	if s.labels != nil {
		return b.labelRobot(ctx, r, *s.labels)
	}
	if s.status == nil {
		return nil
	}
	return b.writeRobotStatus(ctx, r, s)
}

func (b *Bridge) answer(id string, a *wire.Response) {
	if b.sendTo(id, wire.KindResponse, a) {
		b.robots.change(id, true, func(w *word) { w.waits = false })
		if a.Success {
			b.facts.tell(id)
		}
	}
}

// createRobot makes the object. Its status is a second write: the API server
// takes none with the first.
func (b *Bridge) createRobot(ctx context.Context, id string, w word, token jointoken.Token) error {
	r := newRobot(or(token.Namespace, b.cfg.RobotNamespace), id, token.Labels, w)
	err := b.client.Create(ctx, r)
	b.m.robotWrites.WithLabelValues(result(err)).Inc()
	if apierrors.IsAlreadyExists(err) {
		return b.readRobot(ctx, r)
	}
	if err != nil {
		return fmt.Errorf("create robot %s: %w", id, err)
	}
	b.sawRobot(r)
	b.robotQueue.Add(id) // now its status
	return nil
}

func (b *Bridge) labelRobot(ctx context.Context, r *robotv1.Robot, now labels) error {
	next := r.DeepCopy()
	now.write(next)
	if err := b.wroteRobot(ctx, next, b.client.Update(ctx, next), "label robot"); err != nil {
		return err
	}
	b.robotQueue.Add(r.Name) // now its status
	return nil
}

func (b *Bridge) writeRobotStatus(ctx context.Context, r *robotv1.Robot, s robotSteps) error {
	next := r.DeepCopy()
	next.Status = *s.status
	if err := b.wroteRobot(ctx, next, b.client.Status().Update(ctx, next), "write status of robot"); err != nil {
		return err
	}
	b.acknowledge(next.Name, next)
	if s.warning {
		b.warn(next, "NotResponsive", messageDeaf)
	}
	return nil
}

// wroteRobot takes in the outcome of a write.
func (b *Bridge) wroteRobot(ctx context.Context, next *robotv1.Robot, err error, act string) error {
	b.m.robotWrites.WithLabelValues(result(err)).Inc()
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return b.readRobot(ctx, next)
	case err != nil:
		return fmt.Errorf("%s %s: %w", act, next.Name, err)
	}
	b.sawRobot(next)
	return nil
}

// readRobot looks past the cache. The error asks for another try.
func (b *Bridge) readRobot(ctx context.Context, r *robotv1.Robot) error {
	var now robotv1.Robot
	err := b.live.Get(ctx, client.ObjectKeyFromObject(r), &now)
	switch {
	case apierrors.IsNotFound(err):
		b.view.removeRobot(r)
	case err != nil:
		return fmt.Errorf("read robot %s again: %w", r.Name, err)
	default:
		b.sawRobot(&now)
	}
	return errStale
}
