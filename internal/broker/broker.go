// Package broker is the embedded MQTT broker: version 3.1.1 and 5, in memory
// only, behind three verbs. It is a wire and keeps nothing that matters, so a
// program that outgrows it can point at any other broker instead.
package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"sync"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/hooks/auth"

	"k8s4r.io/k8s4r/internal/wire"
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

	mu       sync.Mutex
	server   *mqtt.Server // nil: not running
	listener *listener
}

// errNotRunning says that Start was not called, or Stop was.
var errNotRunning = errors.New("broker is not running")

// New prepares a broker; it does nothing until Start.
func New(cfg Config) *Broker {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Broker{cfg: cfg}
}

// Start listens and serves. It returns once clients can connect. The context
// bounds nothing but the call.
func (b *Broker) Start(context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.server != nil {
		return errors.New("broker started twice")
	}
	server := mqtt.New(&mqtt.Options{
		Capabilities:           capabilities(),
		Logger:                 slog.New(quiet{b.cfg.Log.Handler()}),
		SysTopicResendInterval: sysInterval,
	})
	h := newHandover()
	l := newListener(b.cfg.Listen, h.end)
	// Exactly one hook may judge who is let in: the broker lets a client do
	// what any of its hooks allows.
	if err := errors.Join(server.AddHook(new(auth.AllowHook), nil), server.AddHook(h, nil)); err != nil {
		return fmt.Errorf("set up broker: %w", err)
	}
	if err := server.AddListener(l); err != nil {
		return err
	}
	if err := server.Serve(); err != nil {
		return errors.Join(fmt.Errorf("serve MQTT: %w", err), server.Close())
	}
	b.server, b.listener = server, l
	return nil
}

// Ready returns nil once clients can connect.
func (b *Broker) Ready(context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.server == nil {
		return errNotRunning
	}
	return nil
}

// Stop disconnects every client and waits until they are gone, no longer than
// ctx allows. It may be called in any phase and any number of times.
func (b *Broker) Stop(ctx context.Context) error {
	b.mu.Lock()
	server := b.server
	b.server = nil
	b.mu.Unlock()
	if server == nil {
		return nil
	}
	closed := make(chan error, 1)
	go func() { closed <- server.Close() }()
	select {
	case err := <-closed:
		return err
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
	return "mqtt://" + reachable(b.listener.Address())
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

const (
	// headroom is what a packet may be larger than its payload: topic,
	// properties and header.
	headroom = 16 << 10
	// pending bounds the messages that wait for one slow client; the broker
	// drops what is over. Each costs 8 bytes for every connected client, used
	// or not. The server is the one client that hears from all robots.
	pending = 8 << 10
	// sessionExpiry bounds, in seconds, how long a session outlives its
	// connection.
	sessionExpiry = 24 * 60 * 60
	// sysInterval is the time, in seconds, between updates of the $SYS topics,
	// which stop the whole program for a moment to measure memory.
	sysInterval = 60 * 60
)

func capabilities() *mqtt.Capabilities {
	c := mqtt.NewDefaultServerCapabilities()
	c.MaximumPacketSize = wire.MaxPayload + headroom
	c.MaximumClientWritesPending = pending
	c.MaximumSessionExpiryInterval = sessionExpiry
	c.ReceiveMaximum = 1 << 10
	c.MaximumInflight = math.MaxUint16
	// Any bound here would also end retained messages, and with them the
	// word about what should run on a robot that is away for long.
	c.MaximumMessageExpiryInterval = 0
	c.Compatibilities.NoInheritedPropertiesOnAck = true
	return c
}
