package component

import (
	"context"
	"errors"
	"sync"
)

// ErrEnded is the error of a component that returned without having been stopped.
var ErrEnded = errors.New("ended unexpectedly")

// Background is a Component that runs a function until its context ends.
type Background struct {
	run   func(context.Context) error
	ready func(context.Context) error

	mu     sync.Mutex
	cancel context.CancelFunc // nil before Start
	done   chan struct{}
	err    error
}

// NewBackground returns a component that calls run once, in its own goroutine. If ready is nil, the
// component is ready as soon as run has been called.
func NewBackground(run, ready func(context.Context) error) *Background {
	return &Background{run: run, ready: ready}
}

// Start calls the run function. A component that was stopped cannot be started again.
func (b *Background) Start(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cancel != nil {
		return errors.New("started twice")
	}
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	b.cancel, b.done = cancel, make(chan struct{})
	go b.runUntilDone(life)
	return nil
}

func (b *Background) runUntilDone(life context.Context) {
	defer close(b.done)
	err := b.run(life)
	if life.Err() != nil && errors.Is(err, context.Canceled) {
		err = nil
	}
	if life.Err() == nil && err == nil {
		err = ErrEnded
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = err
}

// Ready calls the ready function. If there is none, it returns nil.
func (b *Background) Ready(ctx context.Context) error {
	if b.ready == nil {
		return nil
	}
	return b.ready(ctx)
}

// Stop cancels the context of the run function and blocks until it returns or ctx ends. It returns
// the error of the function, unless the function had returned before: that error is in Err.
func (b *Background) Stop(ctx context.Context) error {
	b.mu.Lock()
	cancel, ended := b.cancel, b.err != nil
	b.mu.Unlock()
	if cancel == nil || ended {
		return nil //nolint:nilerr // callers get that error from Err
	}
	cancel()
	select {
	case <-b.done:
		return b.Err()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Done implements Monitored.
func (b *Background) Done() <-chan struct{} { return b.done }

// Err implements Monitored.
func (b *Background) Err() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}
