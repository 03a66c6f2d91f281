package diagnose

import (
	"errors"
	"fmt"
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// checkKernel checks the system calls that the agent needs or prefers.
func checkKernel() []Finding {
	release := "Linux"
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		release = "Linux " + unix.ByteSliceToString(u.Release[:])
	}
	if err := tryPidfd(); err != nil {
		return []Finding{newFinding(Fail, "kernel", fmt.Sprintf("%s does not support process descriptors: %v", release, err),
			"use Linux 5.4 or newer; in a container, a seccomp profile that allows pidfd_open and waitid")}
	}
	// A range without descriptors.
	if err := unix.CloseRange(math.MaxInt32-1, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return []Finding{newFinding(Warn, "kernel", release+" has no close_range, so tasks inherit the descriptors that the agent was started with",
			"use Linux 5.11 or newer")}
	}
	return []Finding{okFinding("kernel", release+" supports all system calls that the agent uses")}
}

// tryPidfd opens a descriptor of this process and waits for it, which must fail with ECHILD.
func tryPidfd() error {
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		return fmt.Errorf("pidfd_open: %w", err)
	}
	defer unix.Close(fd) //nolint:errcheck // it was only read
	err = unix.Waitid(unix.P_PIDFD, fd, nil, unix.WEXITED|unix.WNOHANG, nil)
	if err != nil && !errors.Is(err, unix.ECHILD) {
		return fmt.Errorf("waitid: %w", err)
	}
	return nil
}
