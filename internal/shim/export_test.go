package shim

import "golang.org/x/sys/unix"

// PID is the number of its process.
func (s *Spare) PID() int { return s.pid }

// Forsake lets go of it as the kernel does for one that dies. The pidfd tells when
// it has ended.
func (s *Spare) Forsake() (pidfd int) {
	_ = unix.Close(s.line)
	return s.pidfd
}
