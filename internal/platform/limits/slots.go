package limits

import (
	"errors"
	"net/netip"
	"sync"
)

var (
	// ErrTooMany means that the slots are taken.
	ErrTooMany = errors.New("too many connections")
	// ErrTooManyOfName means that one name has taken all slots that it may.
	ErrTooManyOfName = errors.New("too many connections of one client")
)

// Slots bounds what is open at the same time, such as connections.
type Slots struct {
	// Max is how many slots there are. Zero: none.
	Max int
	// MaxPerName is how many of them one name may take. Zero: none.
	MaxPerName int

	mu     sync.Mutex
	count  int
	byName map[string]int
}

// Take takes a slot for a name. It fails with ErrTooMany or ErrTooManyOfName.
func (s *Slots) Take(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.byName[name] >= s.MaxPerName:
		return ErrTooManyOfName
	case s.count >= s.Max:
		return ErrTooMany
	}
	if s.byName == nil {
		s.byName = map[string]int{}
	}
	s.count++
	s.byName[name]++
	return nil
}

// Free frees a slot that Take has taken for a name.
func (s *Slots) Free(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count--
	if s.byName[name]--; s.byName[name] == 0 {
		delete(s.byName, name)
	}
}

// Count returns how many slots are taken.
func (s *Slots) Count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count
}

// AddressName returns the name by which a client without an identity is bounded: the IP address
// of an address with a port, or the network (/64) of an IPv6 address, in which one machine can
// have any number of addresses.
func AddressName(address string) string {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return address
	}
	ip := at.Addr().Unmap().WithZone("")
	if ip.Is6() {
		if network, err := ip.Prefix(64); err == nil {
			return network.String()
		}
	}
	return ip.String()
}
