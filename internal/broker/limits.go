package broker

import (
	"cmp"
	"net"
	"time"

	"golang.org/x/time/rate"
)

// Limits bounds what clients may use. Zero fields have their default.
type Limits struct {
	// Connections is the maximum number of open connections of clients with
	// certificates; as many more may be in the TLS handshake, for at most ten seconds.
	// Default: 16,384.
	Connections int
	// Unauthenticated is the maximum number of open connections of clients without
	// certificates. Default: 4,096.
	Unauthenticated int
	// PerAddress is the maximum of each kind from one IP address, which a whole site may
	// share. Default: 4,096.
	PerAddress int
	// ConnectRate is how many connections per second one address may open, ConnectBurst
	// how many at once. Clients without a certificate share the same limits for all
	// addresses. More are closed. Default: 100, and 4,096.
	ConnectRate  float64
	ConnectBurst int
	// PacketRate is how many messages, subscriptions and pings per second a robot may
	// send, PacketBurst how many at once. A robot that sends more is read from more
	// slowly; nothing is lost. Default: 200, and 1,000.
	PacketRate  float64
	PacketBurst int
	// QueuedBytes bounds the queue of one client that is slow or disconnected, in bytes of
	// whole packets. Default: 64 MiB, which suffices for the server, which receives the
	// messages of all robots.
	QueuedBytes int
}

func (l Limits) withDefaults() Limits {
	l.QueuedBytes = cmp.Or(l.QueuedBytes, 64<<20)
	l.Connections = cmp.Or(l.Connections, 16<<10)
	l.Unauthenticated = cmp.Or(l.Unauthenticated, 4<<10)
	l.PerAddress = cmp.Or(l.PerAddress, 4<<10)
	l.ConnectRate = cmp.Or(l.ConnectRate, 100)
	l.ConnectBurst = cmp.Or(l.ConnectBurst, 4<<10)
	l.PacketRate = cmp.Or(l.PacketRate, 200)
	l.PacketBurst = cmp.Or(l.PacketBurst, 1000)
	return l
}

// newLimiter returns the rate limiter of a client's packets. Nil: unlimited.
func (l Limits) newLimiter(of Identity) *rate.Limiter {
	if !of.isLimited() {
		return nil
	}
	return rate.NewLimiter(rate.Limit(l.PacketRate), l.PacketBurst)
}

// awaitTurn blocks while a robot exceeds its rate.
func (c *conn) awaitTurn(packets int) error {
	if c.limiter == nil {
		return nil
	}
	// A reservation above the burst would never be granted.
	wait := c.limiter.ReserveN(time.Now(), min(packets, c.limiter.Burst())).Delay()
	if wait <= 0 {
		return nil
	}
	c.hub.refusals.throttled.Add(1)
	turn := time.NewTimer(wait)
	defer turn.Stop()
	select {
	case <-turn.C:
		return nil
	case <-c.closing:
		return net.ErrClosed
	}
}

// awaitServer blocks a robot while the server has a backlog of messages.
func (c *conn) awaitServer() error {
	for c.limiter != nil {
		caughtUp := c.hub.serverBacklog()
		if caughtUp == nil {
			return nil
		}
		select {
		case <-caughtUp:
		case <-c.closing:
			return net.ErrClosed
		}
	}
	return nil
}
