package shim

import "golang.org/x/sys/unix"

// PID returns the process of the shim.
func (s *WarmShim) PID() int { return s.pid }

// CloseSocket closes the agent's end of the socket, as the kernel does if the agent crashes. It
// returns the pidfd of the shim.
func (s *WarmShim) CloseSocket() (pidfd int) {
	_ = unix.Close(s.socket)
	return s.pidfd
}
