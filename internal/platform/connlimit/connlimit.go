// Package connlimit bounds the open connections of an HTTPS server. Before a client has
// authenticated, its connection counts for its address and is closed after seconds. Afterwards it
// counts for the client's identity, because a whole site may share one address.
package connlimit

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"k8s4r.io/k8s4r/internal/platform/limits"
)

// Config bounds connections. Zero fields have their default.
type Config struct {
	// Unauthenticated is the maximum of connections whose clients have not authenticated.
	// Default: 1,024.
	Unauthenticated int
	// PerAddress is how many of them one IP address may have, or one /64 network of IPv6.
	// Default: 256.
	PerAddress int
	// AuthenticateWithin is when such a connection is closed. Default: 30s, which includes the
	// TLS handshake and the first request with its response.
	AuthenticateWithin time.Duration
	// Authenticated is the maximum of connections of authenticated clients. Default: 4,096.
	Authenticated int
	// PerIdentity is how many of them one identity may have. Default: 64.
	PerIdentity int

	// CountOpen is called when the number of connections in a state changes. Optional.
	CountOpen func(state State, change int)
	// CountRefused is called for each connection that was closed, or not counted for an
	// identity, because of a limit. Optional.
	CountRefused func(reason Reason)
	// Clock of the deadlines. If nil, the real one.
	Clock clock.WithDelayedExecution
}

// State is a state of a connection, for metrics.
type State string

// The states of connections.
const (
	StateUnauthenticated State = "unauthenticated"
	StateAuthenticated   State = "authenticated"
)

// Reason is why a connection was refused, for metrics.
type Reason string

// The reasons.
const (
	ReasonTotal    Reason = "total"
	ReasonAddress  Reason = "address"
	ReasonIdentity Reason = "identity"
	ReasonTimeout  Reason = "timeout"
)

// Limiter bounds the connections of one server. Create it with New.
type Limiter struct {
	cfg             Config
	unauthenticated limits.Slots // by address
	authenticated   limits.Slots // by identity
}

// New returns a Limiter for one server. The server must use Listen and WithConn.
func New(c Config) *Limiter {
	c.Unauthenticated, c.PerAddress = cmp.Or(c.Unauthenticated, 1024), cmp.Or(c.PerAddress, 256)
	c.Authenticated, c.PerIdentity = cmp.Or(c.Authenticated, 4096), cmp.Or(c.PerIdentity, 64)
	c.AuthenticateWithin = cmp.Or(c.AuthenticateWithin, 30*time.Second)
	if c.CountOpen == nil {
		c.CountOpen = func(State, int) {}
	}
	if c.CountRefused == nil {
		c.CountRefused = func(Reason) {}
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	l := &Limiter{cfg: c}
	l.unauthenticated.Max, l.unauthenticated.MaxPerName = c.Unauthenticated, c.PerAddress
	l.authenticated.Max, l.authenticated.MaxPerName = c.Authenticated, c.PerIdentity
	return l
}

// Listen returns a listener that closes connections above the limits before they cost a
// handshake.
func (l *Limiter) Listen(inner net.Listener) net.Listener { return &listener{inner, l} }

type listener struct {
	net.Listener
	limiter *Limiter
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	for {
		inner, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c := l.limiter.admit(inner); c != nil {
			return c, nil
		}
		_ = inner.Close()
	}
}

// admit returns a new connection that holds a slot of its address, or nil if there is none.
func (l *Limiter) admit(inner net.Conn) *conn {
	c := &conn{Conn: inner, limiter: l, name: limits.AddressName(inner.RemoteAddr().String())}
	if err := l.unauthenticated.Take(c.name); err != nil {
		l.countRefused(err, ReasonAddress)
		return nil
	}
	l.cfg.CountOpen(StateUnauthenticated, 1)
	c.deadline = l.cfg.Clock.AfterFunc(l.cfg.AuthenticateWithin, c.closeLate)
	return c
}

func (l *Limiter) countRefused(err error, ofName Reason) {
	if errors.Is(err, limits.ErrTooManyOfName) {
		l.cfg.CountRefused(ofName)
		return
	}
	l.cfg.CountRefused(ReasonTotal)
}

// conn is a connection that holds a slot until it is closed.
type conn struct {
	net.Conn
	limiter  *Limiter
	deadline clock.Timer // not called with mu held

	mu              sync.Mutex
	isAuthenticated bool
	isClosed        bool
	name            string // address or identity, of the slot
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.deadline.Stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closeLocked()
}

func (c *conn) closeLocked() error {
	if !c.isClosed {
		c.isClosed = true
		c.freeSlotLocked()
	}
	return c.Conn.Close()
}

func (c *conn) freeSlotLocked() {
	slots, state := &c.limiter.unauthenticated, StateUnauthenticated
	if c.isAuthenticated {
		slots, state = &c.limiter.authenticated, StateAuthenticated
	}
	slots.Free(c.name)
	c.limiter.cfg.CountOpen(state, -1)
}

// closeLate closes a connection whose client has not authenticated in time.
func (c *conn) closeLate() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isAuthenticated || c.isClosed {
		return
	}
	c.limiter.cfg.CountRefused(ReasonTimeout)
	_ = c.closeLocked()
}

// authenticate moves the connection to the slots of an identity.
func (c *conn) authenticate(identity string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.isClosed:
		return net.ErrClosed
	case c.isAuthenticated:
		return nil
	}
	if err := c.limiter.authenticated.Take(identity); err != nil {
		c.limiter.countRefused(err, ReasonIdentity)
		return ErrTooMany
	}
	c.freeSlotLocked()
	c.isAuthenticated, c.name = true, identity
	c.limiter.cfg.CountOpen(StateAuthenticated, 1)
	return nil
}

type connKey struct{}

// WithConn is the ConnContext of an http.Server that serves a listener of Listen, with or without
// TLS.
func (l *Limiter) WithConn(ctx context.Context, inner net.Conn) context.Context {
	if secure, ok := inner.(*tls.Conn); ok {
		inner = secure.NetConn()
	}
	return context.WithValue(ctx, connKey{}, inner)
}

// ErrTooMany means that an identity, or all identities together, have as many connections as they
// may.
var ErrTooMany = errors.New("too many connections are open: close some, or try again later")

// Authenticate counts the connection of a request for the identity of its client, and lets it
// stay open. A connection that several clients share, such as that of a proxy, counts for the
// first. It fails with ErrTooMany. Without a Limiter it does nothing.
func Authenticate(ctx context.Context, identity string) error {
	c, ok := ctx.Value(connKey{}).(*conn)
	if !ok {
		return nil
	}
	if err := c.authenticate(identity); err != nil {
		return fmt.Errorf("%s: %w", identity, err)
	}
	c.deadline.Stop()
	return nil
}
