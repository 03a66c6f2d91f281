package artifact

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"syscall"
)

// errForbiddenAddress rejects an address from which no artifact may be fetched.
var errForbiddenAddress = errors.New("artifacts must not come from a link-local or metadata address")

// forbiddenNetworks are where a robot or its cloud provides credentials to every local process.
// Loopback is not among them: the task could connect to it anyway, and local mirrors use it.
var forbiddenNetworks = []netip.Prefix{
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

// translated are IPv6 prefixes whose last four bytes are an IPv4 address that a router translates
// to.
var translated = []netip.Prefix{
	netip.MustParsePrefix("64:ff9b::/96"),
	netip.MustParsePrefix("::/96"),
}

// checkAddress is called for each address before it is dialled. That is after DNS and redirects,
// so no name can bypass it.
func checkAddress(_ context.Context, _, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: %s", errForbiddenAddress, address)
	}
	if isForbidden(ap.Addr()) {
		return fmt.Errorf("%w: %s", errForbiddenAddress, ap.Addr())
	}
	return nil
}

func isForbidden(a netip.Addr) bool {
	a = embeddedIPv4(a.Unmap().WithZone(""))
	for _, p := range forbiddenNetworks {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// embeddedIPv4 returns the IPv4 address that an IPv6 address is translated to, or the address
// itself.
func embeddedIPv4(a netip.Addr) netip.Addr {
	for _, p := range translated {
		if p.Contains(a) && !a.IsLoopback() {
			b := a.As16()
			return netip.AddrFrom4([4]byte(b[12:]))
		}
	}
	return a
}
