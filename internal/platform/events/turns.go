package events

import (
	"context"
	"sync/atomic"
)

const (
	// maxWriting is how many events of one recorder are created at once. The broadcaster alone would
	// create all of them at once, beside the objects that they report, and slow these down.
	maxWriting = 2
	// maxWaiting bounds the events that wait, each of which takes a few kilobytes. More are created
	// without waiting.
	maxWaiting = 2000
)

// turns makes events wait for each other.
type turns struct {
	slots   chan struct{}
	waiting atomic.Int32
}

func newTurns() *turns { return &turns{slots: make(chan struct{}, maxWriting)} }

// wait returns when an event may be created, or ctx ends. The caller calls done afterwards.
func (t *turns) wait(ctx context.Context) (done func()) {
	defer t.waiting.Add(-1)
	if t.waiting.Add(1) > maxWaiting {
		return func() {}
	}
	select {
	case t.slots <- struct{}{}:
		return func() { <-t.slots }
	case <-ctx.Done():
		return func() {}
	}
}
