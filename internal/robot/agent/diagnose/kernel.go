package doctor

import (
	"errors"
	"fmt"
	"math"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// kernel looks for the system calls that the agent cannot do without, or would
// rather not.
func kernel() []Finding {
	release := "Linux"
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		release = "Linux " + unix.ByteSliceToString(u.Release[:])
	}
	if err := pidfds(); err != nil {
		return []Finding{bad(Fail, "kernel", fmt.Sprintf("%s does not let a process be held by descriptor: %v", release, err),
			"use Linux 5.4 or newer; in a container, a seccomp profile that allows pidfd_open and waitid")}
	}
	// A range with nothing in it.
	if err := unix.CloseRange(math.MaxInt32-1, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return []Finding{bad(Warn, "kernel", release+" cannot shut all descriptors at once, so tasks inherit what the agent was started with",
			"use Linux 5.11 or newer")}
	}
	return []Finding{good("kernel", release+" has all that the agent uses")}
}

// pidfds opens this process, and waits for it, which must be refused for the right
// reason.
func pidfds() error {
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

// clock asks the kernel whether anybody keeps the time right.
func clock() []Finding {
	const remedy = "run a time service: timedatectl set-ntp true, or chrony"
	const timeError = 5 // TIME_ERROR, adjtimex(2)
	var t unix.Timex
	state, err := unix.Adjtimex(&t)
	switch {
	case time.Now().Year() < 2025:
		return []Finding{bad(Warn, "clock", fmt.Sprintf("says %s, which is long past: certificates are refused", time.Now().Format(time.DateOnly)), remedy)}
	case err != nil:
		return []Finding{bad(Warn, "clock", fmt.Sprintf("the kernel does not say whether it is right: %v", err), remedy)}
	case state == timeError || t.Status&unix.STA_UNSYNC != 0:
		return []Finding{bad(Warn, "clock", "is not synchronised: times in reports and logs are off", remedy)}
	}
	return []Finding{good("clock", "is synchronised")}
}
