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
	match  func(client.Object) bool // selects objects by what list options cannot express
}

// update is what followSource emits: the current objects of the source, or the error of a request
// to the API server.
type update struct {
	kind    kind
	objects []client.Object
	err     error
}

// followSource lists and watches until ctx ends. When a watch ends, it lists again: the sets are
// small, so no change is missed, even if the server was replaced in between. It returns an error
// only if the server denies the first request.
func followSource(ctx context.Context, s source, retry func(int) time.Duration, emit func(update)) error {
	failures, received := 0, false
	for {
		err := s.listAndWatch(ctx, func(objects []client.Object) {
			failures, received = 0, true
			emit(update{kind: s.kind, objects: objects})
		})
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the error is a consequence of the end of ctx
		}
		if err != nil && !received && isDenied(err) {
			return err
		}
		if err != nil {
			emit(update{kind: s.kind, err: err})
		}
		failures++
		if !sleepContext(ctx, retry(failures)) {
			return nil
		}
	}
}

// isDenied reports whether the user lacks permission, which a retry does not change. A server
// that has just started also denies until it has loaded its roles, so that only the first request
// counts.
func isDenied(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)
}

// retryDelay doubles from 200 ms to 2 s, so that the client reconnects soon after a restart
// without overloading a server that is down.
func retryDelay(failures int) time.Duration {
	return min(100*time.Millisecond<<min(failures, 5), 2*time.Second)
}

func sleepContext(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// listAndWatch lists and then watches from the list's resource version. It returns nil if the
// watch has ended normally or the resource version has expired.
func (s source) listAndWatch(ctx context.Context, emit func([]client.Object)) error {
	list := s.kind.newList()
	if err := s.client.List(ctx, list, s.opts...); err != nil {
		return fmt.Errorf("list %s: %w", s.kind.plural, err)
	}
	objects, err := extractItems(list)
	if err != nil {
		return err
	}
	known := map[types.UID]client.Object{}
	for _, o := range objects {
		s.applyEvent(known, watch.Modified, o)
	}
	emit(sortObjects(known))
	return s.watchFrom(ctx, list.GetResourceVersion(), known, emit)
}

func (s source) watchFrom(ctx context.Context, from string, known map[types.UID]client.Object, emit func([]client.Object)) error {
	since := &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: from}}
	w, err := s.client.Watch(ctx, s.kind.newList(), append(slices.Clone(s.opts), since)...)
	if err != nil {
		return fmt.Errorf("watch %s: %w", s.kind.plural, err)
	}
	defer w.Stop()
	// Stop closes the channel, which ends the loop when ctx ends.
	defer context.AfterFunc(ctx, w.Stop)()
	for event := range w.ResultChan() {
		o, ok := event.Object.(client.Object)
		if event.Type == watch.Error || !ok {
			return watchError(s.kind, event)
		}
		if s.applyEvent(known, event.Type, o) {
			emit(sortObjects(known))
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

// applyEvent applies one event to known and reports whether the object belongs to the source.
func (s source) applyEvent(known map[types.UID]client.Object, event watch.EventType, o client.Object) bool {
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

func sortObjects(known map[types.UID]client.Object) []client.Object {
	return slices.SortedFunc(maps.Values(known), byName)
}
