package up

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// withSignals returns a context that ends with the first SIGINT or SIGTERM. The second signal calls
// exit, for users who do not want to wait. The returned function stops the handling of signals.
func withSignals(ctx context.Context, exit func(code int)) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		if _, more := <-signals; !more {
			return
		}
		cancel()
		if second, more := <-signals; more {
			exit(128 + int(second.(syscall.Signal)))
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(signals)
		cancel()
	}
}
