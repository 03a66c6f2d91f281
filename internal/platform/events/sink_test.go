package events

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

var began = time.Date(2026, 8, 1, 12, 0, 0, 123456000, time.UTC)

func newEvent() *eventsv1.Event {
	return &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "f.1"}, EventTime: metav1.NewMicroTime(began),
		Type: "Normal", Reason: "Created", Action: "Create", Note: "create a job named f-a!",
		ReportingController: "k8s4r-manager", ReportingInstance: "k8s4r-manager-host",
		Regarding: corev1.ObjectReference{Kind: "JobFlow", Namespace: "ns", Name: "f"}, Related: &corev1.ObjectReference{Kind: "Job", Name: "f-a"},
	}
}

// describeEvent returns what kubectl and vcctl print of an event.
func describeEvent(e *corev1.Event) string {
	return fmt.Sprintf("%s %s %s/%s by %s (%s) for %s %s and %s: %s; %dx from %s to %s", e.Type, e.Reason, e.Namespace, e.Name, e.Source.Component, e.ReportingController,
		e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Related.Name, e.Message, e.Count,
		e.FirstTimestamp.UTC().Format(time.TimeOnly), e.LastTimestamp.UTC().Format(time.TimeOnly))
}

func TestSink_WritesSourceAndTimestamps(t *testing.T) {
	api := fake.NewClientset()
	s, e := sink{api.CoreV1(), newTurns()}, newEvent()
	if _, err := s.Create(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	got, err := api.CoreV1().Events("ns").Get(t.Context(), "f.1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	const prefix = "Normal Created ns/f.1 by k8s4r-manager (k8s4r-manager) for JobFlow f and f-a: create a job named f-a!; "
	if text := describeEvent(got); text != prefix+"1x from 12:00:00 to 12:00:00" || got.EventTime.IsZero() || got.Action != "Create" {
		t.Errorf("%s, event %+v", text, got)
	}
	e.Series = &eventsv1.EventSeries{Count: 3, LastObservedTime: metav1.NewMicroTime(began.Add(time.Minute))}
	if _, err := s.Patch(t.Context(), e, nil); err != nil {
		t.Fatal(err)
	}
	if got, err = api.CoreV1().Events("ns").Get(t.Context(), "f.1", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	if text := describeEvent(got); text != prefix+"3x from 12:00:00 to 12:01:00" || got.Series == nil || got.Series.Count != 3 {
		series, _ := json.Marshal(got.Series)
		t.Errorf("%s, series %s", text, series)
	}
}

// The broadcaster creates the event of a series again if it has expired.
func TestSink_ReturnsErrorOfExpiredEventUnchanged(t *testing.T) {
	e := newEvent()
	e.Series = &eventsv1.EventSeries{Count: 2, LastObservedTime: metav1.NewMicroTime(began)}
	_, err := sink{fake.NewClientset().CoreV1(), newTurns()}.Patch(t.Context(), e, nil)
	if kind := fmt.Sprintf("%T", err); kind != "*errors.StatusError" || !apierrors.IsNotFound(err) {
		t.Errorf("%s %v, want a StatusError that the event was not found", kind, err)
	}
}
