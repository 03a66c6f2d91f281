package broker

import (
	"cmp"
	"net"
	"time"

	"golang.org/x/time/rate"
)

// Limits bound what clients may take of the broker. A field that is zero has
// its default.
type Limits struct {
	// Connections that may be open, of clients that have shown a certificate; as
	// many may be on their way through the handshake, in which each has ten seconds.
	// Default: 16,384.
	Connections int
	// Strangers are those that may be open of clients that have shown none.
	// Default: 4,096.
	Strangers int
	// PerAddress are those of each kind from one IP address, behind which a whole
	// site may be. Default: 4,096.
	PerAddress int
	// ConnectRate is how many connections may come in a second from one address, in
	// the long run, and ConnectBurst how many at once; of clients without a
	// certificate as many from all addresses together. More are hung up on.
	// Default: 100, and 4,096.
	ConnectRate  float64
	ConnectBurst int
	// PacketRate is how many messages, subscriptions and pings a robot may send in a
	// second, in the long run, and PacketBurst how many at once. One that sends more
	// is read from more slowly; nothing is lost. Default: 200, and 1,000.
	PacketRate  float64
	PacketBurst int
}

func (l Limits) withDefaults() Limits {
	l.Connections = cmp.Or(l.Connections, 16<<10)
	l.Strangers = cmp.Or(l.Strangers, 4<<10)
	l.PerAddress = cmp.Or(l.PerAddress, 4<<10)
	l.ConnectRate = cmp.Or(l.ConnectRate, 100)
	l.ConnectBurst = cmp.Or(l.ConnectBurst, 4<<10)
	l.PacketRate = cmp.Or(l.PacketRate, 200)
	l.PacketBurst = cmp.Or(l.PacketBurst, 1000)
	return l
}

// pace of a client's messages. Nil: as it likes.
func (l Limits) pace(of Identity) *rate.Limiter {
	if !of.isBounded() {
		return nil
	}
	return rate.NewLimiter(rate.Limit(l.PacketRate), l.PacketBurst)
}

// awaitTurn holds up a robot that asks for more than it may.
func (c *conn) awaitTurn(packets int) error {
	if c.pace == nil {
		return nil
	}
	// More at once than there may ever be would wait for ever.
	wait := c.pace.ReserveN(time.Now(), min(packets, c.pace.Burst())).Delay()
	if wait <= 0 {
		return nil
	}
	c.hub.refusals.slowed.Add(1)
	turn := time.NewTimer(wait)
	defer turn.Stop()
	select {
	case <-turn.C:
		return nil
	case <-c.done:
		return net.ErrClosed
	}
}

// awaitServer holds up a robot while the server is behind with what robots have
// said.
func (c *conn) awaitServer() error {
	for c.pace != nil {
		relief := c.hub.pressure()
		if relief == nil {
			return nil
		}
		select {
		case <-relief:
		case <-c.done:
			return net.ErrClosed
		}
	}
	return nil
}
