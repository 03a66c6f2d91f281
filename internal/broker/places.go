package broker

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"k8s4r.io/k8s4r/internal/ratelimit"
)

var (
	errTooMany     = errors.New("too many connections")
	errTooManyFrom = errors.New("too many connections from this address")
	errTooFast     = errors.New("too many connections in a short time")
)

// standing is what is known of who is at the other end of a connection.
type standing int

const (
	knocking standing = iota // nothing yet
	stranger                 // it has shown no certificate
	proven                   // it has shown one; or nobody is asked for one
	standings
)

// places bounds the connections that are open. Each standing has room of its own,
// so that those who show no certificate, however many, take none from those who do.
type places struct {
	now   func() time.Time
	trust bool // everybody is proven: nobody is asked for a certificate
	most  int  // of one standing from one address
	rooms [standings]room

	comes     ratelimit.Limits // by address
	strangers *rate.Limiter    // from all of them
	mu        sync.Mutex
}

// room is for the connections of one standing.
type room struct {
	most int
	all  int
	from map[string]int // by address
}

// place is that of one connection.
type place struct {
	from string
	is   standing
}

// mostAddresses are remembered: a stranger can have as many as he likes.
const mostAddresses = 16 << 10

func newPlaces(l Limits, trust bool, now func() time.Time) *places {
	p := &places{
		now: now, trust: trust, most: l.PerAddress,
		comes:     ratelimit.Limits{PerSecond: rate.Limit(l.ConnectRate), AtOnce: l.ConnectBurst, Most: mostAddresses},
		strangers: rate.NewLimiter(rate.Limit(l.ConnectRate), l.ConnectBurst),
	}
	for is, most := range map[standing]int{knocking: l.Connections, stranger: l.Strangers, proven: l.Connections} {
		p.rooms[is] = room{most: most, from: map[string]int{}}
	}
	return p
}

// take a place for a connection from an address, of which nothing is known yet.
func (p *places) take(address net.Addr) (*place, error) {
	pl := &place{from: siteOf(address), is: knocking}
	if p.trust {
		pl.is = proven
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.trust && !p.comes.Allow(pl.from, p.now()) {
		return nil, errTooFast
	}
	return pl, p.enter(pl.from, pl.is)
}

// move a connection to the room of those that it has turned out to be one of.
func (p *places) move(pl *place, to standing) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.trust || pl.is == to {
		return nil
	}
	if to == stranger && !p.strangers.AllowN(p.now(), 1) {
		return errTooFast
	}
	if err := p.enter(pl.from, to); err != nil {
		return err
	}
	p.leave(pl)
	pl.is = to
	return nil
}

func (p *places) free(pl *place) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leave(pl)
}

func (p *places) enter(from string, is standing) error {
	r := &p.rooms[is]
	switch {
	case r.all >= r.most:
		return errTooMany
	case r.from[from] >= p.most:
		return errTooManyFrom
	}
	r.all++
	r.from[from]++
	return nil
}

func (p *places) leave(pl *place) {
	r := &p.rooms[pl.is]
	r.all--
	if r.from[pl.from]--; r.from[pl.from] == 0 {
		delete(r.from, pl.from)
	}
}

func (p *places) taken() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.rooms {
		n += p.rooms[i].all
	}
	return n
}

// siteOf is what counts as one address: of IPv6 the network, in which one machine
// has any number of them.
func siteOf(address net.Addr) string {
	at, err := netip.ParseAddrPort(address.String())
	if err != nil {
		return address.String()
	}
	ip := at.Addr().Unmap().WithZone("")
	if ip.Is6() {
		if network, err := ip.Prefix(64); err == nil {
			return network.String()
		}
	}
	return ip.String()
}
