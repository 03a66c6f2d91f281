package testkit

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// CPU returns the CPU time of the running process.
func (p *Process) CPU() time.Duration {
	p.t.Helper()
	return readCPU(p.t, p.PID())
}

// CPU returns the CPU time of the process.
func (u *Up) CPU() time.Duration {
	u.t.Helper()
	return readCPU(u.t, u.PID())
}

func readCPU(t testing.TB, pid int) time.Duration {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	// The fields after the name, which may have blanks: state is the third of all,
	// utime the 14th and stime the 15th, in hundredths of a second.
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	var user, system int64
	if _, err := fmt.Sscan(fields[11]+" "+fields[12], &user, &system); err != nil {
		t.Fatal(err)
	}
	return time.Duration(user+system) * 10 * time.Millisecond
}

var residentSet = regexp.MustCompile(`(?m)^VmRSS:\s+(\d+) kB$`)

// RSS returns the resident memory of the running process in bytes.
func (p *Process) RSS() int {
	p.t.Helper()
	return readRSS(p.t, p.PID())
}

// RSS returns the resident memory of the process in bytes.
func (u *Up) RSS() int {
	u.t.Helper()
	return readRSS(u.t, u.PID())
}

func readRSS(t testing.TB, pid int) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	m := residentSet.FindSubmatch(b)
	if m == nil {
		t.Fatalf("/proc/%d/status has no VmRSS", pid)
	}
	kB, err := strconv.Atoi(string(m[1]))
	if err != nil {
		t.Fatal(err)
	}
	return kB << 10
}
