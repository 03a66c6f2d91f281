package broker

import (
	"errors"
	"net"
	"time"

	"golang.org/x/time/rate"

	"k8s4r.io/k8s4r/internal/platform/limits"
)

var errTooFast = errors.New("too many connections in a short time")

// trustLevel is how far the client of a connection is authenticated.
type trustLevel int

const (
	pending         trustLevel = iota // in the TLS handshake
	unauthenticated                   // without a certificate
	authenticated                     // with a certificate, or without access control
	trustLevels
)

// connSlots bounds the open connections. Each trust level has a pool of its own, so that
// clients without certificates cannot use up the slots of those with one.
type connSlots struct {
	now              func() time.Time
	allAuthenticated bool                      // without access control
	pools            [trustLevels]limits.Slots // by address

	connectRate         limits.Limits // by address
	unauthenticatedRate *rate.Limiter // from all of them
}

// connSlot is the slot of one connection. Only the goroutine of the connection uses it.
type connSlot struct {
	address string
	level   trustLevel
}

// maxAddresses bounds the addresses in memory: a client can have any number of them.
const maxAddresses = 16 << 10

func newConnSlots(l Limits, trust bool, now func() time.Time) *connSlots {
	p := &connSlots{
		now: now, allAuthenticated: trust,
		connectRate:         limits.Limits{PerSecond: rate.Limit(l.ConnectRate), Burst: l.ConnectBurst, MaxNames: maxAddresses},
		unauthenticatedRate: rate.NewLimiter(rate.Limit(l.ConnectRate), l.ConnectBurst),
	}
	for is, most := range map[trustLevel]int{pending: l.Pending, unauthenticated: l.Unauthenticated, authenticated: l.Connections} {
		p.pools[is].Max, p.pools[is].MaxPerName = most, l.PerAddress
	}
	return p
}

// takeSlot takes a slot for a new connection.
func (p *connSlots) takeSlot(address net.Addr) (*connSlot, error) {
	pl := &connSlot{address: limits.AddressName(address.String()), level: pending}
	if p.allAuthenticated {
		pl.level = authenticated
	}
	if !p.allAuthenticated && !p.connectRate.Allow(pl.address, p.now()) {
		return nil, errTooFast
	}
	return pl, p.pools[pl.level].Take(pl.address)
}

// moveSlot moves a connection to the pool of another trust level.
func (p *connSlots) moveSlot(pl *connSlot, to trustLevel) error {
	if p.allAuthenticated || pl.level == to {
		return nil
	}
	if to == unauthenticated && !p.unauthenticatedRate.AllowN(p.now(), 1) {
		return errTooFast
	}
	if err := p.pools[to].Take(pl.address); err != nil {
		return err
	}
	p.freeSlot(pl)
	pl.level = to
	return nil
}

func (p *connSlots) freeSlot(pl *connSlot) { p.pools[pl.level].Free(pl.address) }

func (p *connSlots) openCount() (n int) {
	for i := range p.pools {
		n += p.pools[i].Count()
	}
	return n
}
