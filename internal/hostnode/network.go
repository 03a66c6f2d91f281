package hostnode

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math/big"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
)

// network assigns addresses of this machine to pods. A single local route makes the whole range
// local. It stays when the node exits, since the pods keep running. A nil network assigns none.
type network struct {
	pods netip.Prefix

	mu        sync.Mutex
	allocated map[netip.Addr]types.UID
}

// openNetwork adds the route of the address range. That requires root.
func (n *Node) openNetwork() error {
	if os.Geteuid() != 0 || !n.usesMounts() || !n.cfg.PodRange.IsValid() {
		return nil
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find the loopback interface: %w", err)
	}
	err = netlink.RouteReplace(&netlink.Route{
		LinkIndex: lo.Attrs().Index, Type: unix.RTN_LOCAL, Table: unix.RT_TABLE_LOCAL, Scope: unix.RT_SCOPE_HOST,
		Dst: &net.IPNet{IP: n.cfg.PodRange.Addr().AsSlice(), Mask: net.CIDRMask(n.cfg.PodRange.Bits(), 32)},
	})
	if errors.Is(err, unix.EPERM) { // root in a container may lack CAP_NET_ADMIN
		n.log.Warn("pods use the address of the host: the kernel rejected the route for --pod-range", "error", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("add the route for --pod-range %s: %w", n.cfg.PodRange, err)
	}
	n.network = &network{pods: n.cfg.PodRange.Masked(), allocated: map[netip.Addr]types.UID{}}
	return nil
}

// allocateAddress returns an address for a pod: its previous one if that is free, or one derived
// from its UID, so that two nodes on one machine rarely choose the same.
func (n *network) allocateAddress(uid types.UID, had string) (string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if a, err := netip.ParseAddr(had); err == nil && n.pods.Contains(a) && n.allocated[a] == "" {
		n.allocated[a] = uid
		return had, nil
	}
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(uid))
	size := uint64(1) << (32 - n.pods.Bits())
	for i := range size {
		// Not the first or the last: programs take them for the network and broadcast addresses.
		a := n.addressAt(1 + (hash.Sum64()+i)%max(size-2, 1))
		if n.allocated[a] == "" {
			n.allocated[a] = uid
			return a.String(), nil
		}
	}
	return "", fmt.Errorf("all addresses of --pod-range %s are in use", n.pods)
}

// addressAt returns the i-th address of the range.
func (n *network) addressAt(i uint64) netip.Addr {
	base := n.pods.Addr().As4()
	sum := new(big.Int).Add(new(big.Int).SetBytes(base[:]), new(big.Int).SetUint64(i))
	var a [4]byte
	sum.FillBytes(a[:])
	return netip.AddrFrom4(a)
}

func (n *network) releaseAddress(address string, uid types.UID) {
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if a, err := netip.ParseAddr(address); err == nil && n.allocated[a] == uid {
		delete(n.allocated, a)
	}
}

// assignAddress gives the pod an address until it has ended.
func (w *worker) assignAddress() (err error) {
	w.podIP = w.hostIP
	if !w.ownsHosts() {
		return nil
	}
	had, _ := os.ReadFile(w.paths.addressFile())
	if isTerminal(w.pod) {
		w.podIP = w.pod.Status.PodIP
		return nil
	}
	if w.podIP, err = w.node.network.allocateAddress(w.pod.UID, strings.TrimSpace(string(had))); err != nil {
		return err
	}
	if err := os.WriteFile(w.paths.addressFile(), []byte(w.podIP), 0o600); err != nil {
		return err
	}
	return w.writeHosts()
}

// ownsHosts reports whether the pod has its own address and /etc/hosts.
func (w *worker) ownsHosts() bool { return w.node.network != nil && !w.pod.Spec.HostNetwork }
