package broker

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"
)

// listener accepts TCP connections and tracks all open ones, so that clients that never
// send CONNECT, or never read, cannot delay Stop.
type listener struct {
	tcp net.Listener
	tls *tls.Config // nil: no TLS
	hub *hub
	log *slog.Logger

	mu      sync.Mutex
	conns   map[*conn]struct{} // nil: closed
	running sync.WaitGroup     // connections
}

// newListener opens an address.
func newListener(address string, t *tls.Config, h *hub) (*listener, error) {
	tcp, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for MQTT: %w", err)
	}
	return &listener{tcp: tcp, tls: t, hub: h, log: h.log, conns: map[*conn]struct{}{}}, nil
}

// clientURL returns the URL for programs on this machine. It is empty for a nil
// listener.
func (l *listener) clientURL(scheme string) string {
	if l == nil {
		return ""
	}
	return scheme + dialableAddress(l.tcp.Addr().String())
}

// acceptLoop accepts connections until the listener is closed.
func (l *listener) acceptLoop() {
	for {
		tcp, err := l.tcp.Accept()
		switch {
		case err == nil:
			l.addConn(tcp)
		case l.isClosed():
			return
		default:
			// Most likely out of file descriptors, which must not end the service
			// for the connected robots.
			l.log.Warn("accept MQTT connection", "error", err)
			time.Sleep(100 * time.Millisecond)
		}
	}
}

// addConn serves a connection, unless the listener is closed.
func (l *listener) addConn(tcp net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conns == nil {
		_ = tcp.Close()
		return
	}
	taken, err := l.hub.slots.takeSlot(tcp.RemoteAddr())
	if err != nil {
		l.log.Debug("MQTT connection refused", "remote", tcp.RemoteAddr(), "reason", err)
		l.hub.refusals.record("address", Refusal{Action: "connect"})
		_ = tcp.Close()
		return
	}
	if l.tls != nil {
		tcp = tls.Server(tcp, l.tls) // the handshake runs in the connection's goroutine
	}
	c := newConn(tcp, l.hub)
	c.slot = taken
	l.conns[c] = struct{}{}
	l.running.Go(func() {
		defer l.removeConn(c)
		l.serveConn(c)
	})
}

// serveConn serves a connection until it ends. The TLS handshake needs a deep stack, which a
// goroutine would keep as long as its connection, so another goroutine completes it.
func (l *listener) serveConn(c *conn) {
	defer func() { _ = c.tcp.Close() }()
	isConnected := false
	var connect sync.WaitGroup
	connect.Go(func() { isConnected = l.runStep(c, c.handleConnect) })
	connect.Wait()
	if isConnected {
		l.runStep(c, c.serveClient)
	}
}

// runStep reports whether a step of a connection succeeded. A panic closes only this connection.
func (l *listener) runStep(c *conn, step func() error) bool {
	defer func() {
		if p := recover(); p != nil {
			l.log.Error("MQTT connection panicked", "remote", c.remoteAddress(), "panic", p)
		}
	}()
	err := step()
	if err != nil {
		l.log.Debug("MQTT connection ended", "remote", c.remoteAddress(), "client", c.id, "error", err)
	}
	return err == nil
}

func (l *listener) removeConn(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
	l.hub.slots.freeSlot(c.slot)
}

func (l *listener) isClosed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.conns == nil
}

// closeAll closes the listener and all its connections.
func (l *listener) closeAll() {
	l.mu.Lock()
	conns := l.conns
	l.conns = nil
	l.mu.Unlock()
	_ = l.tcp.Close()
	for c := range conns {
		c.closeWith(codeShuttingDown)
	}
}
