package broker

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"
)

// Config configures a broker.
type Config struct {
	// Listen is the address without TLS, such as "127.0.0.1:1883". Port 0 selects a free
	// port, which URL returns. If empty, there is no such listener.
	Listen string
	// TLSListen is the address with TLS, such as ":8883". Port 0 selects a free port,
	// which TLSURL returns. If empty, there is no such listener.
	TLSListen string
	// TLS is the server configuration of TLSListen. Its ClientAuth decides whether
	// client certificates are verified.
	TLS *tls.Config
	// Authenticator identifies clients. If nil, all clients are unrestricted.
	Authenticator Authenticator
	// Limits bounds what clients may use.
	Limits Limits
	// OnRefused is called for refused actions of known identities, at most once a minute
	// for each. Optional.
	OnRefused func(Refusal)
	// OnThrottled is called with the names of robots that exceed their rate, at most once in
	// ten minutes for each. Optional.
	OnThrottled func(name string)
	// Log receives warnings. If nil, they are discarded.
	Log *slog.Logger
}

// Broker is an embedded broker. Create it with New.
type Broker struct {
	cfg Config
	now func() time.Time

	mu      sync.Mutex
	plain   *listener // nil: never started, or there is none
	secure  *listener // nil: never started, or there is none
	hub     *hub      // nil: never started
	running bool
}

var errNotRunning = errors.New("broker is not running")

// New returns a broker that does nothing until Start.
func New(cfg Config) *Broker {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Authenticator == nil {
		cfg.Authenticator = allowEveryone{}
	}
	cfg.Limits = cfg.Limits.withDefaults()
	return &Broker{cfg: cfg, now: time.Now}
}

// Start listens and serves. It returns once clients can connect.
func (b *Broker) Start(context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.running {
		return errors.New("broker started twice")
	}
	if err := b.openListeners(); err != nil {
		return err
	}
	b.running = true
	for _, l := range b.listenersLocked() {
		go l.acceptLoop()
	}
	return nil
}

// openListeners opens all configured listeners or none.
func (b *Broker) openListeners() (err error) {
	if b.cfg.TLSListen != "" && b.cfg.TLS == nil {
		return errors.New("listen for MQTT with TLS: there is no TLS configuration")
	}
	h := newHub(b.cfg, b.now)
	var plain, secure *listener
	if b.cfg.Listen != "" {
		if plain, err = newListener(b.cfg.Listen, nil, h); err != nil {
			return err
		}
	}
	if b.cfg.TLSListen != "" {
		if secure, err = newListener(b.cfg.TLSListen, b.cfg.TLS, h); err != nil {
			if plain != nil {
				_ = plain.tcp.Close()
			}
			return err
		}
	}
	b.plain, b.secure, b.hub = plain, secure, h
	return nil
}

// listenersLocked returns the open listeners.
func (b *Broker) listenersLocked() []*listener {
	return slices.DeleteFunc([]*listener{b.plain, b.secure}, func(l *listener) bool { return l == nil })
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

// Stop disconnects every client and waits until their connections are closed, or ctx
// ends. It may be called at any time and more than once.
func (b *Broker) Stop(ctx context.Context) error {
	b.mu.Lock()
	all, running, h := b.listenersLocked(), b.running, b.hub
	b.running = false
	b.mu.Unlock()
	if !running {
		return nil
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		for _, l := range all {
			l.closeAll()
		}
		for _, l := range all {
			l.running.Wait()
		}
		h.close()
	}()
	select {
	case <-gone:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop broker: %w", context.Cause(ctx))
	}
}

// Disconnect closes every connection of this name and removes its sessions, with queued
// messages and last wills. When it returns, messages of those connections have no
// effect. Clients that are connecting are authenticated again.
func (b *Broker) Disconnect(name string) {
	b.mu.Lock()
	h := b.hub
	b.mu.Unlock()
	if h != nil {
		h.revokeName(name)
	}
}

// Stats returns the broker's counters. They are zero before Start.
func (b *Broker) Stats() Stats {
	b.mu.Lock()
	h := b.hub
	b.mu.Unlock()
	if h == nil {
		return Stats{}
	}
	return h.readStats()
}

// URL is the address without TLS that programs on this machine connect to,
// such as "mqtt://127.0.0.1:1883". It is empty before Start, or if there is none.
func (b *Broker) URL() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.plain.clientURL("mqtt://")
}

// TLSURL is the address with TLS, such as "mqtts://127.0.0.1:8883". It is empty
// before Start, or if there is none.
func (b *Broker) TLSURL() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.secure.clientURL("mqtts://")
}

// dialableAddress replaces an unspecified address by localhost.
func dialableAddress(address string) string {
	host, port, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err == nil && ip != nil && ip.IsUnspecified() {
		return net.JoinHostPort("localhost", port)
	}
	return address
}
