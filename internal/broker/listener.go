package broker

import (
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/mochi-mqtt/server/v2/listeners"
)

const (
	// connectWithin bounds the time from the connection to its CONNECT packet.
	connectWithin = 10 * time.Second
	// partWithin bounds the time that a client is given to hear that the
	// broker stops.
	partWithin = time.Second
)

// listener accepts TCP connections and knows all that are open, so that those
// that never said CONNECT, or never read, cannot hold up the stop.
type listener struct {
	address string
	over    func(net.Conn) // told when a connection is over

	mu    sync.Mutex
	tcp   net.Listener
	log   *slog.Logger
	conns map[net.Conn]struct{} // nil: closed
}

var _ listeners.Listener = (*listener)(nil)

func newListener(address string, over func(net.Conn)) *listener {
	return &listener{address: address, over: over, conns: map[net.Conn]struct{}{}}
}

// Init opens the port.
func (l *listener) Init(log *slog.Logger) error {
	tcp, err := net.Listen("tcp", l.address)
	if err != nil {
		return fmt.Errorf("listen for MQTT: %w", err)
	}
	l.tcp, l.log = tcp, log
	return nil
}

// ID names the listener in logs.
func (l *listener) ID() string { return "mqtt" }

// Protocol is that below MQTT.
func (l *listener) Protocol() string { return "tcp" }

// Address is the one that is open, with its real port.
func (l *listener) Address() string {
	if l.tcp == nil {
		return l.address
	}
	return l.tcp.Addr().String()
}

// Serve accepts connections until Close.
func (l *listener) Serve(establish listeners.EstablishFn) {
	for {
		conn, err := l.tcp.Accept()
		switch {
		case err == nil && l.add(conn):
			go l.serve(conn, establish)
		case err == nil:
			_ = conn.Close()
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

// serve speaks with one client to its end. A packet that makes the broker
// panic costs its sender the connection, and nobody else anything.
func (l *listener) serve(conn net.Conn, establish listeners.EstablishFn) {
	defer l.remove(conn)
	defer l.over(conn)
	defer func() {
		if p := recover(); p != nil {
			l.log.Error("MQTT connection panicked", "remote", conn.RemoteAddr().String(), "panic", p)
		}
	}()
	_ = conn.SetDeadline(time.Now().Add(connectWithin))
	if err := establish(l.ID(), conn); err != nil {
		l.log.Debug("MQTT connection ended", "remote", conn.RemoteAddr().String(), "error", err)
	}
}

// Close stops accepting, lets the broker say goodbye, then hangs up.
func (l *listener) Close(sayGoodbye listeners.CloseFn) {
	_ = l.tcp.Close()
	conns := l.take()
	for conn := range conns {
		_ = conn.SetWriteDeadline(time.Now().Add(partWithin))
	}
	sayGoodbye(l.ID())
	for conn := range conns {
		_ = conn.Close()
	}
}

func (l *listener) add(conn net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conns == nil {
		return false
	}
	l.conns[conn] = struct{}{}
	return true
}

func (l *listener) remove(conn net.Conn) {
	_ = conn.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, conn)
}

// take returns the open connections and lets no further one in.
func (l *listener) take() map[net.Conn]struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	conns := l.conns
	l.conns = nil
	return conns
}

func (l *listener) closed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.conns == nil
}
