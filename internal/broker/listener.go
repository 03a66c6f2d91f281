package broker

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"
)

// listener accepts TCP connections and knows all that are open, so that those
// that never said CONNECT, or never read, cannot hold up the stop.
type listener struct {
	tcp net.Listener
	tls *tls.Config // nil: without
	hub *hub
	log *slog.Logger

	mu    sync.Mutex
	conns map[*conn]struct{} // nil: closed
	alive sync.WaitGroup     // connections
}

// listen opens an address.
func listen(address string, t *tls.Config, h *hub) (*listener, error) {
	tcp, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for MQTT: %w", err)
	}
	return &listener{tcp: tcp, tls: t, hub: h, log: h.log, conns: map[*conn]struct{}{}}, nil
}

// url is where programs on this machine reach it. Nil is reached nowhere.
func (l *listener) url(scheme string) string {
	if l == nil {
		return ""
	}
	return scheme + reachable(l.tcp.Addr().String())
}

// serve accepts connections until stop.
func (l *listener) serve() {
	for {
		tcp, err := l.tcp.Accept()
		switch {
		case err == nil:
			l.add(tcp)
		case l.closed():
			return
		default:
			// Out of file descriptors, most likely: one robot too many must
			// not end the service for all others.
			l.log.Warn("accept MQTT connection", "error", err)
			time.Sleep(100 * time.Millisecond)
		}
	}
}

// add serves a connection, unless the listener has stopped.
func (l *listener) add(tcp net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conns == nil {
		_ = tcp.Close()
		return
	}
	taken, err := l.hub.places.take(tcp.RemoteAddr())
	if err != nil {
		l.log.Debug("MQTT connection refused", "remote", tcp.RemoteAddr(), "reason", err)
		l.hub.refusals.add("address", Refusal{What: "connect"})
		_ = tcp.Close()
		return
	}
	if l.tls != nil {
		tcp = tls.Server(tcp, l.tls) // the handshake is the connection's own
	}
	c := newConn(tcp, l.hub)
	c.place = taken
	l.conns[c] = struct{}{}
	l.alive.Go(func() {
		defer l.remove(c)
		l.speak(c)
	})
}

// speak is the life of a connection. A packet that makes us panic costs its
// sender the connection, and nobody else anything.
func (l *listener) speak(c *conn) {
	defer func() {
		if p := recover(); p != nil {
			l.log.Error("MQTT connection panicked", "remote", c.remote(), "panic", p)
		}
	}()
	if err := c.serve(); err != nil {
		l.log.Debug("MQTT connection ended", "remote", c.remote(), "client", c.id, "error", err)
	}
}

func (l *listener) remove(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
	l.hub.places.free(c.place)
}

func (l *listener) closed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.conns == nil
}

// hangUp lets nobody in any more, and tells everybody to go.
func (l *listener) hangUp() {
	l.mu.Lock()
	conns := l.conns
	l.conns = nil
	l.mu.Unlock()
	_ = l.tcp.Close()
	for c := range conns {
		c.end(codeShuttingDown)
	}
}
