package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"
)

// Config says where the broker listens.
type Config struct {
	// Listen is the address, such as "127.0.0.1:1883". Port 0 picks a free
	// port, which URL tells.
	Listen string
	// Log takes what is worth a warning. Nil: nobody.
	Log *slog.Logger
}

// Broker is one embedded broker. Make it with New.
type Broker struct {
	cfg Config
	now func() time.Time

	mu       sync.Mutex
	listener *listener // nil: never started
	running  bool
}

// errNotRunning says that Start was not called, or Stop was.
var errNotRunning = errors.New("broker is not running")

// New prepares a broker; it does nothing until Start.
func New(cfg Config) *Broker {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Broker{cfg: cfg, now: time.Now}
}

// Start listens and serves. It returns once clients can connect. The context
// bounds nothing but the call.
func (b *Broker) Start(context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.running {
		return errors.New("broker started twice")
	}
	tcp, err := net.Listen("tcp", b.cfg.Listen)
	if err != nil {
		return fmt.Errorf("listen for MQTT: %w", err)
	}
	b.listener, b.running = newListener(tcp, newHub(b.cfg.Log, b.now)), true
	go b.listener.serve()
	return nil
}

// Ready returns nil once clients can connect.
func (b *Broker) Ready(context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.running {
		return errNotRunning
	}
	return nil
}

// Stop disconnects every client and waits until they are gone, no longer than
// ctx allows. It may be called in any phase and any number of times.
func (b *Broker) Stop(ctx context.Context) error {
	b.mu.Lock()
	l, running := b.listener, b.running
	b.running = false
	b.mu.Unlock()
	if !running {
		return nil
	}
	select {
	case <-l.stop():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop broker: %w", context.Cause(ctx))
	}
}

// URL is the address that programs on this machine connect to, such as
// "mqtt://127.0.0.1:1883". It is empty before Start.
func (b *Broker) URL() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.listener == nil {
		return ""
	}
	return "mqtt://" + reachable(b.listener.tcp.Addr().String())
}

// reachable turns an address that means every interface into one that can be
// dialled.
func reachable(address string) string {
	host, port, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err == nil && ip != nil && ip.IsUnspecified() {
		return net.JoinHostPort("localhost", port)
	}
	return address
}
