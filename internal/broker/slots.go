package broker

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"k8s4r.io/k8s4r/internal/platform/limits"
)

var (
	errTooMany     = errors.New("too many connections")
	errTooManyFrom = errors.New("too many connections from this address")
	errTooFast     = errors.New("too many connections in a short time")
)

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
	allAuthenticated bool // without access control
	perAddress       int  // limit of each pool for one address
	pools            [trustLevels]slotPool

	connectRate         limits.Limits // by address
	unauthenticatedRate *rate.Limiter // from all of them
	mu                  sync.Mutex
}

// slotPool counts the connections of one trust level.
type slotPool struct {
	limit     int
	count     int
	byAddress map[string]int // by address
}

// connSlot is the slot of one connection.
type connSlot struct {
	address string
	level   trustLevel
}

// maxAddresses bounds the addresses in memory: a client can have any number of them.
const maxAddresses = 16 << 10

func newConnSlots(l Limits, trust bool, now func() time.Time) *connSlots {
	p := &connSlots{
		now: now, allAuthenticated: trust, perAddress: l.PerAddress,
		connectRate:         limits.Limits{PerSecond: rate.Limit(l.ConnectRate), Burst: l.ConnectBurst, MaxNames: maxAddresses},
		unauthenticatedRate: rate.NewLimiter(rate.Limit(l.ConnectRate), l.ConnectBurst),
	}
	for is, most := range map[trustLevel]int{pending: l.Connections, unauthenticated: l.Unauthenticated, authenticated: l.Connections} {
		p.pools[is] = slotPool{limit: most, byAddress: map[string]int{}}
	}
	return p
}

// takeSlot takes a slot for a new connection.
func (p *connSlots) takeSlot(address net.Addr) (*connSlot, error) {
	pl := &connSlot{address: addressKey(address), level: pending}
	if p.allAuthenticated {
		pl.level = authenticated
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.allAuthenticated && !p.connectRate.Allow(pl.address, p.now()) {
		return nil, errTooFast
	}
	return pl, p.enterLocked(pl.address, pl.level)
}

// moveSlot moves a connection to the pool of another trust level.
func (p *connSlots) moveSlot(pl *connSlot, to trustLevel) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.allAuthenticated || pl.level == to {
		return nil
	}
	if to == unauthenticated && !p.unauthenticatedRate.AllowN(p.now(), 1) {
		return errTooFast
	}
	if err := p.enterLocked(pl.address, to); err != nil {
		return err
	}
	p.leaveLocked(pl)
	pl.level = to
	return nil
}

func (p *connSlots) freeSlot(pl *connSlot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leaveLocked(pl)
}

func (p *connSlots) enterLocked(from string, is trustLevel) error {
	r := &p.pools[is]
	switch {
	case r.count >= r.limit:
		return errTooMany
	case r.byAddress[from] >= p.perAddress:
		return errTooManyFrom
	}
	r.count++
	r.byAddress[from]++
	return nil
}

func (p *connSlots) leaveLocked(pl *connSlot) {
	r := &p.pools[pl.level]
	r.count--
	if r.byAddress[pl.address]--; r.byAddress[pl.address] == 0 {
		delete(r.byAddress, pl.address)
	}
}

func (p *connSlots) openCount() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.pools {
		n += p.pools[i].count
	}
	return n
}

// addressKey returns the IP address, or the network of an IPv6 address, in which one
// machine can have any number of addresses.
func addressKey(address net.Addr) string {
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
