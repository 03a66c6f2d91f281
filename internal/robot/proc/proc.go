// Package proc tells processes apart and finds them, from /proc.
package proc

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
)

// StartTicks reads when a process started, in clock ticks since boot (proc(5),
// stat, field 22). It fails with fs.ErrNotExist when there is no such process.
func StartTicks(pid int) (uint64, error) {
	fields, err := stat(strconv.Itoa(pid))
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(fields[19], 10, 64)
}

// Self is the number of this process as the given /proc sees it, which is that of
// its mount: in a PID namespace the process itself knows only a smaller one.
func Self() (pid int, startTicks uint64, err error) {
	name, err := os.Readlink("/proc/self")
	if err != nil {
		return 0, 0, err
	}
	if pid, err = strconv.Atoi(name); err != nil {
		return 0, 0, err
	}
	startTicks, err = StartTicks(pid)
	return pid, startTicks, err
}

// OfPIDFD is the number of a process that is held by descriptor, as /proc sees it.
// Zero: it was reaped.
func OfPIDFD(fd int) int {
	b, err := os.ReadFile("/proc/self/fdinfo/" + strconv.Itoa(fd))
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

// Alive tells whether a process exists and has not ended: a zombie, which only
// waits for its parent, has.
func Alive(pid int) bool {
	fields, err := stat(strconv.Itoa(pid))
	return err == nil && fields[0] != "Z" && fields[0] != "X"
}

// Is tells whether a process lives and is the one that started then.
func Is(pid int, startTicks uint64) bool {
	if pid <= 0 || startTicks == 0 {
		return false
	}
	got, err := StartTicks(pid)
	return err == nil && got == startTicks && Alive(pid)
}

// Descendants lists the processes below one, zombies among them.
func Descendants(pid int) []int {
	children := Now().children
	found := children[pid]
	for i := 0; i < len(found); i++ {
		found = append(found, children[found[i]]...)
	}
	return found
}

// All lists the numbers of all processes.
func All() []int {
	var all []int
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			all = append(all, pid)
		}
	}
	return all
}

// stat reads the fields of /proc/pid/stat from the third on, the state.
func stat(pid string) ([]string, error) {
	b, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return nil, err
	}
	// The second field is the program's name in brackets, with anything in it.
	end := bytes.LastIndexByte(b, ')')
	fields := strings.Fields(string(b[end+1:]))
	if len(fields) < 22 {
		return nil, fmt.Errorf("/proc/%s/stat has %d fields after the name", pid, len(fields))
	}
	return fields, nil
}

// BootID names this boot of the machine. It is empty where /proc does not say.
var BootID = sync.OnceValue(func() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
})
