package component

import (
	"context"
	"errors"
	"sync"
)

// ErrEnded says that a component returned before anyone had asked it to stop.
var ErrEnded = errors.New("ended by itself")

// Background makes a Component of a function that runs until its context ends.
type Background struct {
	run   func(context.Context) error
	ready func(context.Context) error

	mu     sync.Mutex
	cancel context.CancelFunc // nil: not started
	done   chan struct{}
	err    error
}

// NewBackground returns a component that calls run once, in a goroutine of its
// own. A nil ready means ready as soon as run has been called.
func NewBackground(run, ready func(context.Context) error) *Background {
	return &Background{run: run, ready: ready}
}

// Start calls the run function. A component that was stopped cannot start again.
func (b *Background) Start(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cancel != nil {
		return errors.New("started twice")
	}
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	b.cancel, b.done = cancel, make(chan struct{})
	go b.live(life)
	return nil
}

func (b *Background) live(life context.Context) {
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

// Ready calls the ready function, if there is one.
func (b *Background) Ready(ctx context.Context) error {
	if b.ready == nil {
		return nil
	}
	return b.ready(ctx)
}

// Stop cancels the context of the run function and waits for it to return, no
// longer than ctx allows. It returns the error that the function ended with,
// unless it had ended before: that error is Err's.
func (b *Background) Stop(ctx context.Context) error {
	b.mu.Lock()
	cancel, dead := b.cancel, b.err != nil
	b.mu.Unlock()
	if cancel == nil || dead {
		return nil //nolint:nilerr // who watches Err has that error already
	}
	cancel()
	select {
	case <-b.done:
		return b.Err()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Done implements Mortal.
func (b *Background) Done() <-chan struct{} { return b.done }

// Err implements Mortal.
func (b *Background) Err() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}
