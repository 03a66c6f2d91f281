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

// network gives pods addresses of this machine. All of a range are the machine's
// own by a single local route, and stay so when the node is gone: pods run on.
// A nil network gives none.
type network struct {
	pods netip.Prefix

	mu    sync.Mutex
	taken map[netip.Addr]types.UID
}

// openNetwork makes the range of addresses, which takes root.
func (n *Node) openNetwork() error {
	if os.Geteuid() != 0 || !n.mounts() || !n.cfg.PodRange.IsValid() {
		return nil
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("the loopback interface: %w", err)
	}
	err = netlink.RouteReplace(&netlink.Route{
		LinkIndex: lo.Attrs().Index, Type: unix.RTN_LOCAL, Table: unix.RT_TABLE_LOCAL, Scope: unix.RT_SCOPE_HOST,
		Dst: &net.IPNet{IP: n.cfg.PodRange.Addr().AsSlice(), Mask: net.CIDRMask(n.cfg.PodRange.Bits(), 32)},
	})
	if errors.Is(err, unix.EPERM) { // a container's root may not
		n.log.Warn("pods have the address of the host: the kernel refuses the route of --pod-range", "error", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("make the addresses of pods: route %s: %w", n.cfg.PodRange, err)
	}
	n.network = &network{pods: n.cfg.PodRange.Masked(), taken: map[netip.Addr]types.UID{}}
	return nil
}

// take gives a pod an address: the one that it had, if it is free, or one that
// follows from its UID, so that two nodes of one machine hardly ever meet.
func (n *network) take(uid types.UID, had string) (string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if a, err := netip.ParseAddr(had); err == nil && n.pods.Contains(a) && n.taken[a] == "" {
		n.taken[a] = uid
		return had, nil
	}
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(uid))
	size := uint64(1) << (32 - n.pods.Bits())
	for i := range size {
		// Neither the first nor the last: programs take them for something else.
		a := n.at(1 + (hash.Sum64()+i)%max(size-2, 1))
		if n.taken[a] == "" {
			n.taken[a] = uid
			return a.String(), nil
		}
	}
	return "", fmt.Errorf("no address is left in %s", n.pods)
}

// at is an address of the range by its number.
func (n *network) at(i uint64) netip.Addr {
	base := n.pods.Addr().As4()
	sum := new(big.Int).Add(new(big.Int).SetBytes(base[:]), new(big.Int).SetUint64(i))
	var a [4]byte
	sum.FillBytes(a[:])
	return netip.AddrFrom4(a)
}

func (n *network) release(address string, uid types.UID) {
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if a, err := netip.ParseAddr(address); err == nil && n.taken[a] == uid {
		delete(n.taken, a)
	}
}

// takeAddress gives the pod its address, until it is over.
func (w *worker) takeAddress() (err error) {
	w.podIP = w.hostIP
	if !w.ownsHosts() {
		return nil
	}
	had, _ := os.ReadFile(w.places.ip())
	if terminal(w.pod) {
		w.podIP = w.pod.Status.PodIP
		return nil
	}
	if w.podIP, err = w.node.network.take(w.pod.UID, strings.TrimSpace(string(had))); err != nil {
		return err
	}
	if err := os.WriteFile(w.places.ip(), []byte(w.podIP), 0o600); err != nil {
		return err
	}
	return w.writeHosts()
}

// ownsHosts tells whether the pod has an address and an /etc/hosts of its own.
func (w *worker) ownsHosts() bool { return w.node.network != nil && !w.pod.Spec.HostNetwork }
