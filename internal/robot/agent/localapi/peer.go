package localapi

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/user"
	"slices"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Peer is the user of the process at the other end of a connection, when it connected.
type Peer struct {
	UID    uint32
	groups []uint32
}

// String returns the user as it is reported, such as "alice (uid 1000)".
func (p Peer) String() string {
	id := strconv.FormatUint(uint64(p.UID), 10)
	u, err := user.LookupId(id)
	if err != nil {
		return "uid " + id
	}
	return fmt.Sprintf("%s (uid %s)", u.Username, id)
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
	return p.UID == 0 || int(p.UID) == os.Geteuid() || s.gid != nil && slices.Contains(p.groups, *s.gid)
}

// lookupGroup returns the id of a group. It is nil if the robot has no such group.
func lookupGroup(name string) (*uint32, error) {
	g, err := user.LookupGroup(name)
	if _, isUnknown := errors.AsType[user.UnknownGroupError](err); isUnknown || name == "" {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	id, err := strconv.ParseUint(g.Gid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("group %s has the id %q", name, g.Gid)
	}
	return new(uint32(id)), nil
}
