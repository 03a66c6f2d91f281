package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// source is a set of objects of one kind that can be followed.
type source struct {
	client client.WithWatch
	kind   kind
	opts   []client.ListOption
	match  func(client.Object) bool // what the options cannot say
}

// update is what follow tells: all objects of the source as they stand now,
// or that the API server could not be asked.
type update struct {
	kind    kind
	objects []client.Object
	err     error
}

// follow lists and watches until the context ends. When a watch ends, for
// whatever reason, it lists again: the sets are small, and so nothing that
// happened in between is missed, not even a change of the whole server. It
// gives up only when the server denies the very first question.
func follow(ctx context.Context, s source, retry func(int) time.Duration, emit func(update)) error {
	failures, heard := 0, false
	for {
		err := s.session(ctx, func(objects []client.Object) {
			failures, heard = 0, true
			emit(update{kind: s.kind, objects: objects})
		})
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the caller ended it: what broke by that is no news
		}
		if err != nil && !heard && denied(err) {
			return err
		}
		if err != nil {
			emit(update{kind: s.kind, err: err})
		}
		failures++
		if !pause(ctx, retry(failures)) {
			return nil
		}
	}
}

// denied tells an answer that waiting does not change. A server that has just
// started also denies, until it has read its roles; that is why it counts only
// for the first question.
func denied(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)
}

// retryAfter doubles from 200 ms to 2 s, so that a restarted server is found
// soon and a dead one is not bothered.
func retryAfter(failures int) time.Duration {
	return min(100*time.Millisecond<<min(failures, 5), 2*time.Second)
}

func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// session is one list and the watch from there. Nil: the watch has ended as
// watches do, or its start is too old.
func (s source) session(ctx context.Context, emit func([]client.Object)) error {
	list := s.kind.newList()
	if err := s.client.List(ctx, list, s.opts...); err != nil {
		return fmt.Errorf("list %s: %w", s.kind.plural, err)
	}
	objects, err := itemsOf(list)
	if err != nil {
		return err
	}
	known := map[types.UID]client.Object{}
	for _, o := range objects {
		s.apply(known, watch.Modified, o)
	}
	emit(sorted(known))
	return s.watch(ctx, list.GetResourceVersion(), known, emit)
}

func (s source) watch(ctx context.Context, from string, known map[types.UID]client.Object, emit func([]client.Object)) error {
	since := &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: from}}
	w, err := s.client.Watch(ctx, s.kind.newList(), append(slices.Clone(s.opts), since)...)
	if err != nil {
		return fmt.Errorf("watch %s: %w", s.kind.plural, err)
	}
	defer w.Stop()
	// Stopping closes the channel: the loop must not outlive its context.
	defer context.AfterFunc(ctx, w.Stop)()
	for event := range w.ResultChan() {
		o, ok := event.Object.(client.Object)
		if event.Type == watch.Error || !ok {
			return watchError(s.kind, event)
		}
		if s.apply(known, event.Type, o) {
			emit(sorted(known))
		}
	}
	return nil
}

func watchError(k kind, event watch.Event) error {
	err := apierrors.FromObject(event.Object)
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return nil
	}
	return fmt.Errorf("watch %s: %w", k.plural, err)
}

// apply takes one event into the set, and tells whether it belongs there.
func (s source) apply(known map[types.UID]client.Object, event watch.EventType, o client.Object) bool {
	if event == watch.Bookmark || !s.match(o) {
		return false
	}
	if event == watch.Deleted {
		delete(known, o.GetUID())
	} else {
		known[o.GetUID()] = o
	}
	return true
}

func sorted(known map[types.UID]client.Object) []client.Object {
	return slices.SortedFunc(maps.Values(known), byName)
}
