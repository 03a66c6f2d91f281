package events

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// sink writes events of the recorder as Events of core/v1. The API server accepts source,
// timestamps and count, which kubectl and vcctl print, only there: of events.k8s.io/v1 it rejects
// an Event with them. Both are the same stored object. sink returns errors as they are, because
// the broadcaster decides by their type what is tried again.
type sink struct {
	events typedcorev1.EventsGetter
	turns  *turns
}

// Create creates an event, after those that were recorded before. A series, whose event has expired,
// does not wait: the broadcaster is locked while it writes one.
func (s sink) Create(ctx context.Context, e *eventsv1.Event) (*eventsv1.Event, error) {
	if e.Series == nil {
		done := s.turns.wait(ctx)
		defer done()
	}
	_, err := s.events.Events(e.Namespace).Create(ctx, newCoreEvent(e), metav1.CreateOptions{})
	return e, err
}

// Update replaces an event.
func (s sink) Update(ctx context.Context, e *eventsv1.Event) (*eventsv1.Event, error) {
	_, err := s.events.Events(e.Namespace).Update(ctx, newCoreEvent(e), metav1.UpdateOptions{})
	return e, err
}

// Patch writes the series of an event, in the fields of both APIs. The given patch has only those
// of events.k8s.io/v1.
func (s sink) Patch(ctx context.Context, e *eventsv1.Event, _ []byte) (*eventsv1.Event, error) {
	core := newCoreEvent(e)
	data, err := json.Marshal(map[string]any{"series": core.Series, "count": core.Count, "lastTimestamp": core.LastTimestamp})
	if err != nil {
		return nil, fmt.Errorf("patch event %s: %w", e.Name, err)
	}
	_, err = s.events.Events(e.Namespace).Patch(ctx, e.Name, types.MergePatchType, data, metav1.PatchOptions{})
	return e, err
}

// newCoreEvent returns an event with the fields of both APIs.
func newCoreEvent(e *eventsv1.Event) *corev1.Event {
	core := &corev1.Event{
		ObjectMeta: *e.ObjectMeta.DeepCopy(), InvolvedObject: e.Regarding, Related: e.Related,
		Type: e.Type, Reason: e.Reason, Action: e.Action, Message: e.Note,
		Source:              corev1.EventSource{Component: e.ReportingController},
		ReportingController: e.ReportingController, ReportingInstance: e.ReportingInstance,
		EventTime: e.EventTime, FirstTimestamp: metav1.NewTime(e.EventTime.Time), LastTimestamp: metav1.NewTime(e.EventTime.Time),
		Count: 1,
	}
	if s := e.Series; s != nil {
		core.Series = &corev1.EventSeries{Count: s.Count, LastObservedTime: s.LastObservedTime}
		core.Count, core.LastTimestamp = s.Count, metav1.NewTime(s.LastObservedTime.Time)
	}
	return core
}
