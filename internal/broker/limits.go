package broker

import (
	"errors"
	"net"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Limits bound what clients may take of the broker. A field that is zero has
// its default.
type Limits struct {
	// Connections that may be open, of all clients. Default: 16,384.
	Connections int
	// PerAddress are those from one IP address, behind which a whole site may be.
	// Default: 4,096.
	PerAddress int
	// PublishRate is how many messages a robot may send in a second, in the long
	// run, and PublishBurst how many at once. One that sends more is read from more
	// slowly; nothing is lost. Default: 200, and 1,000.
	PublishRate  float64
	PublishBurst int
}

func (l Limits) withDefaults() Limits {
	if l.Connections == 0 {
		l.Connections = 16 << 10
	}
	if l.PerAddress == 0 {
		l.PerAddress = 4 << 10
	}
	if l.PublishRate == 0 {
		l.PublishRate = 200
	}
	if l.PublishBurst == 0 {
		l.PublishBurst = 1000
	}
	return l
}

var (
	errTooMany     = errors.New("too many connections")
	errTooManyFrom = errors.New("too many connections from this address")
)

// places counts the connections that are open.
type places struct {
	limits Limits

	mu   sync.Mutex
	all  int
	from map[string]int // by IP address
}

// take a place for a connection from an address.
func (p *places) take(address net.Addr) error {
	host := hostOf(address)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.all >= p.limits.Connections:
		return errTooMany
	case p.from[host] >= p.limits.PerAddress:
		return errTooManyFrom
	}
	p.all++
	p.from[host]++
	return nil
}

func (p *places) free(address net.Addr) {
	host := hostOf(address)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all--
	if p.from[host]--; p.from[host] == 0 {
		delete(p.from, host)
	}
}

func (p *places) taken() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.all
}

func hostOf(address net.Addr) string {
	host, _, err := net.SplitHostPort(address.String())
	if err != nil {
		return address.String()
	}
	return host
}

// pace of a client's messages. Nil: as it likes.
func (l Limits) pace(of Identity) *rate.Limiter {
	if !of.isBounded() {
		return nil
	}
	return rate.NewLimiter(rate.Limit(l.PublishRate), l.PublishBurst)
}

// awaitTurn holds up a robot that says more than it may, and any while the
// server is behind with what robots have said.
func (c *conn) awaitTurn() error {
	if c.pace == nil {
		return nil
	}
	if wait := c.pace.Reserve().Delay(); wait > 0 {
		c.hub.refusals.slowed.Add(1)
		turn := time.NewTimer(wait)
		defer turn.Stop()
		select {
		case <-turn.C:
		case <-c.done:
			return net.ErrClosed
		}
	}
	for {
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
}
