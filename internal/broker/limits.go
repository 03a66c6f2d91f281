package broker

import (
	"cmp"
	"maps"
	"net"
	"sync"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"
	"golang.org/x/time/rate"
)

// Limits bounds what clients may use. Zero fields have their default.
type Limits struct {
	// Connections is the maximum number of open connections of clients with
	// certificates. Default: 131,072.
	Connections int
	// Pending is the maximum number of connections in the TLS handshake, for at most ten
	// seconds. Default: 16,384.
	Pending int
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
	// AdmitRate is how many robots with a certificate may connect per second, AdmitBurst
	// how many at once. Others wait, or are asked to come back at their turn, so that a
	// fleet that returns after an outage does not slow down running work. Default: 250,
	// and 500.
	AdmitRate  float64
	AdmitBurst int
	// PacketRate is how many messages, subscriptions and pings per second a robot may
	// send, PacketBurst how many at once. A robot that sends more is read from more
	// slowly; nothing is lost. Default: 200, and 1,000.
	PacketRate  float64
	PacketBurst int
	// ByteRate is how many bytes of messages per second a robot may send, ByteBurst how many
	// at once. A robot that sends more is read from more slowly; nothing is lost. Default:
	// 1 MiB, and 4 MiB.
	ByteRate  float64
	ByteBurst int
	// QueuedBytes bounds the queue of one client that is slow or disconnected, in bytes of
	// whole packets. Default: 64 MiB, which suffices for the server, which receives the
	// messages of all robots.
	QueuedBytes int
}

func (l Limits) withDefaults() Limits {
	l.QueuedBytes = cmp.Or(l.QueuedBytes, 64<<20)
	l.Connections = cmp.Or(l.Connections, 128<<10)
	l.Pending = cmp.Or(l.Pending, 16<<10)
	l.Unauthenticated = cmp.Or(l.Unauthenticated, 4<<10)
	l.PerAddress = cmp.Or(l.PerAddress, 4<<10)
	l.ConnectRate = cmp.Or(l.ConnectRate, 100)
	l.ConnectBurst = cmp.Or(l.ConnectBurst, 4<<10)
	l.AdmitRate = cmp.Or(l.AdmitRate, 250)
	l.AdmitBurst = cmp.Or(l.AdmitBurst, 500)
	l.PacketRate = cmp.Or(l.PacketRate, 200)
	l.PacketBurst = cmp.Or(l.PacketBurst, 1000)
	l.ByteRate = cmp.Or(l.ByteRate, 1<<20)
	l.ByteBurst = cmp.Or(l.ByteBurst, 4<<20)
	return l
}

// connectCost is what each connection but the first counts for the rate limit of packets.
const connectCost = 20

// maxIdleLimiters bounds the limiters that are kept of robots that do not use them.
const maxIdleLimiters = 16 << 10

// clientLimiters has the limiters of robots by name. A robot that connects again has the same, so
// that it cannot exceed its rate by many connections.
type clientLimiters struct {
	limits Limits
	now    func() time.Time

	mu     sync.Mutex
	byName map[string]*clientLimiter
}

// clientLimiter limits the rate of one client.
type clientLimiter struct{ packets, bytes *rate.Limiter }

// limiterOf returns the limiter of a client that connects. Nil: unlimited. Clients without a name
// have one for each connection.
func (l *clientLimiters) limiterOf(of Identity) *clientLimiter {
	if !of.isLimited() {
		return nil
	}
	if of.Name == "" {
		return l.limits.newLimiter()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.byName[of.Name]; c != nil {
		c.reserve(l.now(), connectCost, 0)
		return c
	}
	l.dropIdleLocked()
	c := l.limits.newLimiter()
	l.byName[of.Name] = c
	return c
}

func (l *clientLimiters) dropIdleLocked() {
	if l.byName == nil {
		l.byName = map[string]*clientLimiter{}
	}
	if now := l.now(); len(l.byName) >= maxIdleLimiters {
		maps.DeleteFunc(l.byName, func(_ string, c *clientLimiter) bool { return c.isFull(now) })
	}
}

// newLimiter returns the limiter of one client.
func (l Limits) newLimiter() *clientLimiter {
	return &clientLimiter{packets: rate.NewLimiter(rate.Limit(l.PacketRate), l.PacketBurst), bytes: rate.NewLimiter(rate.Limit(l.ByteRate), l.ByteBurst)}
}

// isFull reports whether a limiter is like a new one.
func (l *clientLimiter) isFull(now time.Time) bool {
	return l.packets.TokensAt(now) >= float64(l.packets.Burst()) && l.bytes.TokensAt(now) >= float64(l.bytes.Burst())
}

// reserve takes packets with this number of bytes, and returns how long the client has to wait.
func (l *clientLimiter) reserve(now time.Time, packets, bytes int) time.Duration {
	// A reservation above the burst would never be granted.
	wait := l.packets.ReserveN(now, min(packets, l.packets.Burst())).DelayFrom(now)
	return max(wait, l.bytes.ReserveN(now, min(bytes, l.bytes.Burst())).DelayFrom(now))
}

// awaitTurn blocks while a robot exceeds its rate.
func (c *conn) awaitTurn(pk *packets.Packet) error {
	if c.limiter == nil {
		return nil
	}
	wait := c.limiter.reserve(c.hub.limiters.now(), packetCost(pk), pk.FixedHeader.Remaining)
	if wait <= 0 {
		return nil
	}
	c.hub.refusals.recordThrottled(c.identity.Name)
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
