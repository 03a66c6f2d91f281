package events

import (
	"context"
	"testing"
	"testing/synctest"
)

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
