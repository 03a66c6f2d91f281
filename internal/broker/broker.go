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

// Config says where the broker listens.
type Config struct {
	// Listen is the address without TLS, such as "127.0.0.1:1883". Port 0 picks a
	// free port, which URL tells. Empty: there is none.
	Listen string
	// TLSListen is the address with TLS, such as ":8883". Port 0 picks a free
	// port, which TLSURL tells. Empty: there is none.
	TLSListen string
	// TLS is the server's side of TLSListen. Certificates that clients show are
	// verified if its ClientAuth says so.
	TLS *tls.Config
	// Authority says who connects, and so what they may do. Nil: everybody may do
	// everything.
	Authority Authority
	// Limits of what clients may take.
	Limits Limits
	// Refused is told what an identity that the authority knows has tried and may
	// not, once a minute each. Nil: nobody is told.
	Refused func(Refusal)
	// Log takes what is worth a warning. Nil: nobody.
	Log *slog.Logger
}

// Broker is one embedded broker. Make it with New.
type Broker struct {
	cfg Config
	now func() time.Time

	mu      sync.Mutex
	plain   *listener // nil: never started, or there is none
	secure  *listener // nil: never started, or there is none
	hub     *hub      // nil: never started
	running bool
}

// errNotRunning says that Start was not called, or Stop was.
var errNotRunning = errors.New("broker is not running")

// New prepares a broker; it does nothing until Start.
func New(cfg Config) *Broker {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Authority == nil {
		cfg.Authority = everyone{}
	}
	cfg.Limits = cfg.Limits.withDefaults()
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
	if err := b.listen(); err != nil {
		return err
	}
	b.running = true
	for _, l := range b.listeners() {
		go l.serve()
	}
	return nil
}

// listen opens what the configuration asks for, all or nothing.
func (b *Broker) listen() (err error) {
	if b.cfg.TLSListen != "" && b.cfg.TLS == nil {
		return errors.New("listen for MQTT with TLS: there is no TLS configuration")
	}
	h := newHub(b.cfg, b.now)
	var plain, secure *listener
	if b.cfg.Listen != "" {
		if plain, err = listen(b.cfg.Listen, nil, h); err != nil {
			return err
		}
	}
	if b.cfg.TLSListen != "" {
		if secure, err = listen(b.cfg.TLSListen, b.cfg.TLS, h); err != nil {
			if plain != nil {
				_ = plain.tcp.Close()
			}
			return err
		}
	}
	b.plain, b.secure, b.hub = plain, secure, h
	return nil
}

// listeners are those that there are. Its caller holds the lock.
func (b *Broker) listeners() []*listener {
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

// Stop disconnects every client and waits until they are gone, no longer than
// ctx allows. It may be called in any phase and any number of times.
func (b *Broker) Stop(ctx context.Context) error {
	b.mu.Lock()
	all, running, h := b.listeners(), b.running, b.hub
	b.running = false
	b.mu.Unlock()
	if !running {
		return nil
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		for _, l := range all {
			l.hangUp()
		}
		for _, l := range all {
			l.alive.Wait()
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

// Disconnect cuts every connection of this name and forgets its sessions: what
// waited there, and the last will. It returns once nothing that they say has
// any effect. Whoever connects meanwhile is asked for anew.
func (b *Broker) Disconnect(name string) {
	b.mu.Lock()
	h := b.hub
	b.mu.Unlock()
	if h != nil {
		h.cut(name)
	}
}

// Stats returns what the broker knows of itself. It is zero before Start.
func (b *Broker) Stats() Stats {
	b.mu.Lock()
	h := b.hub
	b.mu.Unlock()
	if h == nil {
		return Stats{}
	}
	return h.stats()
}

// URL is the address without TLS that programs on this machine connect to,
// such as "mqtt://127.0.0.1:1883". It is empty before Start, or if there is none.
func (b *Broker) URL() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.plain.url("mqtt://")
}

// TLSURL is the address with TLS, such as "mqtts://127.0.0.1:8883". It is empty
// before Start, or if there is none.
func (b *Broker) TLSURL() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.secure.url("mqtts://")
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
