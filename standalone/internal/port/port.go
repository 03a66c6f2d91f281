// Package port opens TCP ports and names the process that uses a port already.
package port

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"
)

// Listen opens address. flag is the flag that set the address, for the error if the port is in use.
func Listen(address, flag string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, portTakenError(address, flag)
	}
	if err != nil {
		return nil, fmt.Errorf("listen for --%s: %w", flag, err)
	}
	return l, nil
}

// Check returns the error that Listen would return, and leaves address free.
func Check(address, flag string) error {
	l, err := Listen(address, flag)
	if err != nil {
		return err
	}
	return l.Close()
}

func portTakenError(address, flag string) error {
	_, p, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("--%s=%s: %w", flag, address, err)
	}
	return fmt.Errorf("port %s is in use%s; choose another with --%s (0 selects a free port)", p, describeHolder(p), flag)
}

func describeHolder(p string) string {
	n, err := strconv.ParseUint(p, 10, 16)
	if err != nil {
		return ""
	}
	h, ok := findHolder("/proc", uint16(n))
	if !ok {
		return ""
	}
	return fmt.Sprintf(" by process %d (%s)", h.pid, h.command)
}
