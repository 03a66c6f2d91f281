package localapi

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"k8s4r.io/k8s4r/internal/robot/isolation"
)

// Peer is the user of the process at the other end of a connection, when it connected.
type Peer struct {
	UID    uint32
	groups []uint32
}

// String returns the user as it is reported, such as "alice (uid 1000)".
func (p Peer) String() string {
	if name := isolation.UserName(p.UID); name != "" {
		return fmt.Sprintf("%s (uid %d)", name, p.UID)
	}
	return fmt.Sprintf("uid %d", p.UID)
}

// readPeer asks the kernel for the credentials of the peer. The process cannot choose them.
func readPeer(c net.Conn) (p Peer, err error) {
	socket, ok := c.(*net.UnixConn)
	if !ok {
		return p, errors.New("the connection is no unix socket")
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return p, err
	}
	outer := raw.Control(func(fd uintptr) {
		var credentials *unix.Ucred
		if credentials, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			p.UID, p.groups = credentials.Uid, append(peerGroups(fd), credentials.Gid)
		}
	})
	return p, errors.Join(err, outer)
}

// peerGroups returns the supplementary groups of the peer. Kernels before 4.13 do not report them, so that
// only its own group counts.
func peerGroups(fd uintptr) []uint32 {
	const maxGroups = 1 << 16 // of the kernel
	groups := make([]uint32, 64)
	for {
		size := uint32(len(groups)) * 4
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.SOL_SOCKET, unix.SO_PEERGROUPS,
			uintptr(unsafe.Pointer(&groups[0])), uintptr(unsafe.Pointer(&size)), 0)
		switch {
		case errno == unix.ERANGE && len(groups) < maxGroups:
			groups = make([]uint32, maxGroups)
		case errno != 0:
			return nil
		default:
			return groups[:size/4]
		}
	}
}

// mayOperate reports whether a peer may use the socket: root, the agent's own user and the members of the
// group.
func (s *Server) mayOperate(p Peer) bool {
	return isAgentsUser(p) || s.gid != nil && slices.Contains(p.groups, *s.gid)
}
