package artifact

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"syscall"
)

// errRefused marks an address that no artifact is fetched from.
var errRefused = errors.New("no artifact is fetched from a link-local or metadata address")

// refused are the places where a robot or its cloud hands out credentials to
// whoever asks from inside. Loopback is not among them: it is the task's own
// robot, where the task could ask as well, and where local mirrors live.
var refused = []netip.Prefix{
	netip.MustParsePrefix("169.254.0.0/16"),     // link-local, metadata of most clouds
	netip.MustParsePrefix("fe80::/10"),          // link-local
	netip.MustParsePrefix("fd00:ec2::/32"),      // metadata, AWS
	netip.MustParsePrefix("fd20:ce::/32"),       // metadata, Google
	netip.MustParsePrefix("100.100.100.200/32"), // metadata, Alibaba
	netip.MustParsePrefix("168.63.129.16/32"),   // metadata, Azure
	netip.MustParsePrefix("192.0.0.192/32"),     // metadata, Oracle
	netip.MustParsePrefix("224.0.0.0/4"),        // multicast
	netip.MustParsePrefix("ff00::/8"),           // multicast
}

// Prefixes of IPv6 whose last four bytes are an IPv4 address that a router
// translates to.
var translated = []netip.Prefix{
	netip.MustParsePrefix("64:ff9b::/96"),
	netip.MustParsePrefix("::/96"),
}

// refuse is asked for each address that is about to be dialled. That is after
// DNS and redirects, so no name can lead around it.
func refuse(_ context.Context, _, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: %s", errRefused, address)
	}
	if isRefused(ap.Addr()) {
		return fmt.Errorf("%w: %s", errRefused, ap.Addr())
	}
	return nil
}

func isRefused(a netip.Addr) bool {
	a = embedded(a.Unmap().WithZone(""))
	for _, p := range refused {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// embedded is the IPv4 address that an address stands for, or itself.
func embedded(a netip.Addr) netip.Addr {
	for _, p := range translated {
		if p.Contains(a) && !a.IsLoopback() {
			b := a.As16()
			return netip.AddrFrom4([4]byte(b[12:]))
		}
	}
	return a
}
