// Package proc identifies and finds processes, by reading /proc.
package proc

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
)

// StartTicks returns when a process started, in clock ticks since boot (proc(5), stat, field 22).
// It returns fs.ErrNotExist if there is no such process.
func StartTicks(pid int) (uint64, error) {
	fields, err := readStat(strconv.Itoa(pid))
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(fields[19], 10, 64)
}

// FindSelf returns the PID of this process in the PID namespace of the mounted /proc, which may
// differ from that of os.Getpid for the first process of a namespace.
func FindSelf() (pid int, startTicks uint64, err error) {
	if pid = os.Getpid(); pid == 1 {
		name, err := os.Readlink("/proc/self")
		if err != nil {
			return 0, 0, err
		}
		if pid, err = strconv.Atoi(name); err != nil {
			return 0, 0, err
		}
	}
	startTicks, err = StartTicks(pid)
	return pid, startTicks, err
}

// OfPIDFD returns the PID of a pidfd, in the PID namespace of /proc. If zero, the process was
// reaped.
func OfPIDFD(fd int) int {
	b, err := ReadFile("/proc/self/fdinfo/" + strconv.Itoa(fd))
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(b) {
		if rest, ok := bytes.CutPrefix(line, []byte("Pid:")); ok {
			pid, _ := strconv.Atoi(string(bytes.TrimSpace(rest)))
			return max(pid, 0)
		}
	}
	return 0
}

// IsAlive reports whether a process exists and has not exited. Zombies have exited.
func IsAlive(pid int) bool {
	fields, err := readStat(strconv.Itoa(pid))
	return err == nil && fields[0] != "Z" && fields[0] != "X"
}

// IsSame reports whether the process is running and has this start time.
func IsSame(pid int, startTicks uint64) bool {
	if pid <= 0 || startTicks == 0 {
		return false
	}
	got, err := StartTicks(pid)
	return err == nil && got == startTicks && IsAlive(pid)
}

// ListDescendants returns the descendants of a process, including zombies.
func ListDescendants(pid int) []int {
	children := ReadProcesses().children
	found := children[pid]
	for i := 0; i < len(found); i++ {
		found = append(found, children[found[i]]...)
	}
	return found
}

// ListAll returns the PIDs of all processes.
func ListAll() []int {
	var all []int
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			all = append(all, pid)
		}
	}
	return all
}

// readStat returns the fields of /proc/pid/stat from the third on, which is the state.
func readStat(pid string) ([]string, error) {
	b, err := ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return nil, err
	}
	// The second field is the program's name in parentheses, which may contain any character.
	end := bytes.LastIndexByte(b, ')')
	fields := strings.Fields(string(b[end+1:]))
	if len(fields) < 22 {
		return nil, fmt.Errorf("/proc/%s/stat has %d fields after the name", pid, len(fields))
	}
	return fields, nil
}

// BootID returns an ID of this boot of the machine. It is empty if /proc does not have it.
var BootID = sync.OnceValue(func() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
})
