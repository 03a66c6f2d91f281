package joinapi

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/identity"
	"k8s4r.io/k8s4r/internal/jointoken"
)

// metaNow is a time as an object can say it: without less than a second.
func metaNow(t time.Time) metav1.Time { return metav1.NewTime(t.Truncate(time.Second)) }

// find looks for the Robot with an id in all namespaces: the older one, where
// two have it. Nil: there is none.
func (h *Handler) find(ctx context.Context, id string) (*robotv1.Robot, error) {
	var list robotv1.RobotList
	if err := h.Client.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("find robot %s: %w", id, err)
	}
	var first *robotv1.Robot
	for i := range list.Items {
		r := &list.Items[i]
		if r.Spec.RobotID == id && (first == nil || r.CreationTimestamp.Before(&first.CreationTimestamp)) {
			first = r
		}
	}
	return first, nil
}

// findOrCreate finds the Robot of somebody who joins, or makes it.
func (h *Handler) findOrCreate(ctx context.Context, id string, token jointoken.Token) (*robotv1.Robot, error) {
	r, err := h.find(ctx, id)
	if err != nil {
		return nil, err
	}
	if r != nil && r.Namespace != token.Namespace {
		return nil, refuse(http.StatusForbidden, identity.ReasonTaken, "robot id %s is taken by a robot of another namespace; choose another --robot-id", id)
	}
	if r != nil {
		return r, nil
	}
	r = &robotv1.Robot{
		ObjectMeta: metav1.ObjectMeta{Namespace: token.Namespace, Name: id},
		Spec:       robotv1.RobotSpec{RobotID: id, Labels: maps.Clone(token.Labels)},
	}
	err = h.Client.Create(ctx, r)
	if apierrors.IsAlreadyExists(err) { // the cache is behind
		err = h.Live.Get(ctx, client.ObjectKeyFromObject(r), r)
	}
	if err != nil {
		return nil, fmt.Errorf("create robot %s: %w", id, err)
	}
	return r, nil
}

// record writes down who asks, if the last who asked was another.
func (h *Handler) record(ctx context.Context, r *robotv1.Robot, p proposal) (*robotv1.Robot, error) {
	return h.write(ctx, r, func(id *robotv1.RobotIdentity) bool {
		last := id.Requested
		if last != nil && last.Key == p.seen.Key && last.Machine == p.seen.Machine {
			return false
		}
		id.Requested = &p.seen
		return true
	})
}

// maxTries bounds how often a write is tried anew because somebody else was
// faster. Heartbeats write to the same object.
const maxTries = 10

// write changes the identity in a Robot's status, as it is now.
func (h *Handler) write(ctx context.Context, r *robotv1.Robot, change func(*robotv1.RobotIdentity) bool) (*robotv1.Robot, error) {
	key := client.ObjectKeyFromObject(r)
	for range maxTries {
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
	return nil, fmt.Errorf("write identity of robot %s: others write it all the time", key.Name)
}
