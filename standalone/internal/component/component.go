// Package component starts the parts of a program in order, monitors them and stops them in reverse
// order.
package component

import "context"

// Component is a part of the program.
type Component interface {
	// Start returns once the component runs. Its context limits only the call: the component runs
	// until Stop.
	Start(ctx context.Context) error
	// Ready returns nil if the component serves, and otherwise an error with what is missing. It
	// checks once and does not wait.
	Ready(ctx context.Context) error
	// Stop stops the component and waits until it has ended. It may be called at any time, also
	// before Start, and any number of times.
	Stop(ctx context.Context) error
}

// Monitored is a Component that can end without having been stopped.
type Monitored interface {
	Component
	// Done returns a channel that is closed when the component has ended. It must not be called
	// before Start.
	Done() <-chan struct{}
	// Err returns why the component ended. It is nil before that and after Stop.
	Err() error
}
