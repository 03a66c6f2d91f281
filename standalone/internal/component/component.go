// Package component starts the parts of one program in order, watches over
// them and stops them in reverse order.
package component

import "context"

// Component is one part of the program.
type Component interface {
	// Start returns once the component runs. Its context bounds the call, not
	// the component's life, which lasts until Stop.
	Start(ctx context.Context) error
	// Ready returns nil once the component serves, else what is still missing.
	// It looks once and does not wait.
	Ready(ctx context.Context) error
	// Stop ends the component and waits until it has ended. It may be called
	// in any phase, also before Start, and any number of times.
	Stop(ctx context.Context) error
}

// Mortal is a Component that may end without having been stopped.
type Mortal interface {
	Component
	// Done is closed when the component has ended, for whatever reason. It may
	// be called only after Start.
	Done() <-chan struct{}
	// Err says why the component ended; it is nil before that and after an
	// orderly stop.
	Err() error
}
