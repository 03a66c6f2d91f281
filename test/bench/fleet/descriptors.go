package main

import (
	"testing"

	"golang.org/x/sys/unix"
)

// spareDescriptors are those of a process beside one for each robot: files, and the connections of the
// server and of profiles.
const spareDescriptors = 100

// raiseDescriptorLimit raises the limit of this process and those that it starts, and returns how many
// robots it admits: each is a connection in the process of the broker, and one in this process.
func raiseDescriptorLimit(t testing.TB, robots int) int {
	want := uint64(robots + spareDescriptors)
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	raised := unix.Rlimit{Cur: max(want, limit.Max), Max: max(want, limit.Max)}
	if unix.Setrlimit(unix.RLIMIT_NOFILE, &raised) != nil { // only root may exceed the hard limit
		raised = unix.Rlimit{Cur: limit.Max, Max: limit.Max}
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &raised); err != nil {
			t.Fatal(err)
		}
	}
	return int(min(want, raised.Cur)) - spareDescriptors
}
