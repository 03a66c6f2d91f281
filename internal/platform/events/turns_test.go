package events

import (
	"context"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// slowEvents is an API server that creates an event each time that end is sent to.
type slowEvents struct {
	typedcorev1.EventInterface
	began chan struct{}
	end   chan struct{}
}

func (s slowEvents) Events(string) typedcorev1.EventInterface { return s }

func (s slowEvents) Create(_ context.Context, e *corev1.Event, _ metav1.CreateOptions) (*corev1.Event, error) {
	s.began <- struct{}{}
	<-s.end
	return e, nil
}

func TestSink_CreatesFewEventsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 3 * maxWriting
		api := slowEvents{began: make(chan struct{}, n), end: make(chan struct{})}
		s := sink{api, newTurns()}
		for range n {
			go func() { _, _ = s.Create(t.Context(), newEvent()) }()
		}
		if synctest.Wait(); len(api.began) != maxWriting {
			t.Errorf("%d requests at once, want %d", len(api.began), maxWriting)
		}
		close(api.end)
		if synctest.Wait(); len(api.began) != n {
			t.Errorf("%d requests in all, want %d", len(api.began), n)
		}
	})
}

// The broadcaster is locked while it writes a series.
func TestSink_SeriesWaitsForNoOtherEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 2 * maxWriting
		api := slowEvents{began: make(chan struct{}, n+1), end: make(chan struct{})}
		s, series := sink{api, newTurns()}, newEvent()
		series.Series = &eventsv1.EventSeries{Count: 2}
		for range n {
			go func() { _, _ = s.Create(t.Context(), newEvent()) }()
		}
		synctest.Wait()
		go func() { _, _ = s.Create(t.Context(), series) }()
		if synctest.Wait(); len(api.began) != maxWriting+1 {
			t.Errorf("%d requests at once, want %d and that of the series", len(api.began), maxWriting)
		}
		close(api.end)
	})
}

// startTurns starts so many events, each of which lasts until it may end. It returns how many have begun.
func startTurns(ctx context.Context, t *turns, n int, end <-chan struct{}) <-chan struct{} {
	began := make(chan struct{}, n)
	for range n {
		go func() {
			done := t.wait(ctx)
			began <- struct{}{}
			<-end
			done()
		}()
	}
	return began
}

func TestTurns_CreatesFewEventsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		began := startTurns(t.Context(), newTurns(), 3*maxWriting, end)
		for want := maxWriting; want <= 3*maxWriting; want++ {
			synctest.Wait()
			if len(began) != want {
				t.Fatalf("%d have begun, want %d", len(began), want)
			}
			end <- struct{}{}
		}
		close(end)
	})
}

func TestTurns_BoundsWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		all := newTurns()
		began := startTurns(t.Context(), all, maxWriting, end)
		synctest.Wait()
		waiting := startTurns(t.Context(), all, maxWaiting+5, end)
		synctest.Wait()
		if len(began) != maxWriting || len(waiting) != 5 {
			t.Errorf("%d have begun, and %d of those that came when %d waited", len(began), len(waiting), maxWaiting)
		}
		close(end)
	})
}

func TestTurns_EndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		end := make(chan struct{})
		began := startTurns(ctx, newTurns(), maxWriting+3, end)
		cancel()
		synctest.Wait()
		if len(began) != maxWriting+3 {
			t.Errorf("%d of %d have ended to wait", len(began), maxWriting+3)
		}
		close(end)
	})
}
