package joinapi

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/platform/jointoken"
	"k8s4r.io/k8s4r/internal/protocol/identity"
)

// toMetaTime returns a time in whole seconds, as the API stores it.
func toMetaTime(t time.Time) metav1.Time { return metav1.NewTime(t.Truncate(time.Second)) }

// findRobot returns the Robot with an ID in any namespace, the oldest if there are
// several, or nil.
func (h *Handler) findRobot(ctx context.Context, id string) (*robotv1.Robot, error) {
	var list robotv1.RobotList
	if err := h.Client.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("find robot %s: %w", id, err)
	}
	var first *robotv1.Robot
	for i := range list.Items {
		r := &list.Items[i]
		if r.Spec.RobotID == id && (first == nil || r.CompareAge(first) < 0) {
			first = r
		}
	}
	return first, nil
}

// findOrCreateRobot returns the Robot of a join request, and creates it if necessary.
func (h *Handler) findOrCreateRobot(ctx context.Context, id string, token jointoken.Token) (*robotv1.Robot, error) {
	r, err := h.findRobot(ctx, id)
	if err != nil {
		return nil, err
	}
	if r != nil && r.Namespace != token.Namespace {
		return nil, newRefusal(http.StatusForbidden, identity.ReasonTaken, "robot id %s is taken by a robot of another namespace; choose another --robot-id", id)
	}
	if r != nil {
		return r, nil
	}
	r = &robotv1.Robot{
		ObjectMeta: metav1.ObjectMeta{Namespace: token.Namespace, Name: id},
		Spec:       robotv1.RobotSpec{RobotID: id, Labels: maps.Clone(token.Labels)},
	}
	err = h.Client.Create(ctx, r)
	if apierrors.IsAlreadyExists(err) { // the cache is outdated
		err = h.Live.Get(ctx, client.ObjectKeyFromObject(r), r)
	}
	if err != nil {
		return nil, fmt.Errorf("create robot %s: %w", id, err)
	}
	return r, nil
}

// recordRequest writes the request to the status, unless the last one was the same.
func (h *Handler) recordRequest(ctx context.Context, r *robotv1.Robot, p joinAttempt) (*robotv1.Robot, error) {
	return h.updateIdentity(ctx, r, func(id *robotv1.RobotIdentity) bool {
		last := id.Requested
		if last != nil && last.Key == p.seen.Key && last.Machine == p.seen.Machine {
			return false
		}
		id.Requested = &p.seen
		return true
	})
}

// maxWriteTries bounds the writes after conflicts. Heartbeats write to the same object.
const maxWriteTries = 10

// updateIdentity changes the identity in the current status of a Robot.
func (h *Handler) updateIdentity(ctx context.Context, r *robotv1.Robot, change func(*robotv1.RobotIdentity) bool) (*robotv1.Robot, error) {
	key := client.ObjectKeyFromObject(r)
	for range maxWriteTries {
		now := &robotv1.Robot{}
		if err := h.Live.Get(ctx, key, now); err != nil {
			return nil, fmt.Errorf("read robot %s: %w", key.Name, err)
		}
		if now.Status.Identity == nil {
			now.Status.Identity = &robotv1.RobotIdentity{}
		}
		if !change(now.Status.Identity) {
			return now, nil
		}
		err := h.Client.Status().Update(ctx, now)
		if err == nil {
			return now, nil
		}
		if !apierrors.IsConflict(err) {
			return nil, fmt.Errorf("write identity of robot %s: %w", key.Name, err)
		}
	}
	return nil, fmt.Errorf("write identity of robot %s: too many conflicts", key.Name)
}

// recordCertificate records a new certificate beside those that have not expired. If there are too
// many, it first forgets those that expire later than the new one: they were issued while the clock
// was ahead, and must not lock the robot out.
func recordCertificate(id *robotv1.RobotIdentity, c robotv1.IssuedCertificate, now time.Time) error {
	valid := slices.DeleteFunc(id.IssuedCertificates(), func(o robotv1.IssuedCertificate) bool { return !now.Before(o.NotAfter.Time) })
	if len(valid) > robotv1.MaxEarlierCertificates {
		valid = slices.DeleteFunc(valid, func(o robotv1.IssuedCertificate) bool { return o.NotAfter.After(c.NotAfter.Time) })
	}
	if len(valid) > robotv1.MaxEarlierCertificates {
		return newRefusal(http.StatusTooManyRequests, identity.ReasonTooMany, "the robot has %d valid certificates; the first of them expires at %s", len(valid), valid[0].NotAfter.UTC().Format(time.RFC3339))
	}
	id.EarlierCertificates, id.Certificate = valid, &c
	return nil
}
