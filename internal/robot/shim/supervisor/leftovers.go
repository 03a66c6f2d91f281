package shims

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"k8s4r.io/k8s4r/internal/proc"
)

// EnvTaskDir is the variable that holds Task.Dir. The children of a task
// inherit it, which is how KillLeftovers knows them.
const EnvTaskDir = "K8S4R_TASK_DIR"

// Leftover names what an agent that is gone knew of a task it had started.
type Leftover struct {
	Dir string // Task.Dir
	// PID and StartTicks are those of the Process. Zero: the agent was gone
	// before it could write them down.
	PID        int
	StartTicks uint64
}

// KillLeftovers ends what still runs of the tasks that an earlier agent had
// started during this boot, and waits until it is gone, for up to wait. It
// finds the leader by its number and start time and everything else by its
// environment. It returns how many processes it has killed, and an error when
// some are still there.
func KillLeftovers(tasks []Leftover, wait time.Duration) (killed int, err error) {
	dirs := make(map[string]bool, len(tasks))
	leaders := make(map[int]uint64, len(tasks))
	for _, t := range tasks {
		dirs[t.Dir] = true
		if t.PID > 0 {
			leaders[t.PID] = t.StartTicks
		}
	}
	seen := map[int]bool{}
	for until := time.Now().Add(wait); ; time.Sleep(5 * time.Millisecond) {
		left := strays(dirs, leaders)
		for _, pid := range left {
			seen[pid] = true
			killGroup(pid)
		}
		switch {
		case len(left) == 0:
			return len(seen), nil
		case time.Now().After(until):
			return len(seen), fmt.Errorf("processes %v of earlier tasks do not end", left)
		}
	}
}

// strays lists the living processes of these tasks.
func strays(dirs map[string]bool, leaders map[int]uint64) []int {
	return slices.DeleteFunc(proc.All(), func(pid int) bool {
		return pid == os.Getpid() || !isLeader(pid, leaders) && !dirs[taskDir(pid)]
	})
}

func isLeader(pid int, leaders map[int]uint64) bool {
	want, ok := leaders[pid]
	return ok && proc.Is(pid, want)
}

// taskDir reads EnvTaskDir from the environment that a process was started
// with. It is empty when there is none or it may not be read.
func taskDir(pid int) string {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "environ"))
	if err != nil {
		return ""
	}
	for v := range bytes.SplitSeq(b, []byte{0}) {
		if dir, ok := bytes.CutPrefix(v, []byte(EnvTaskDir+"=")); ok {
			return string(dir)
		}
	}
	return ""
}

// killGroup kills a process and its group, unless that is the group of the
// caller.
func killGroup(pid int) {
	group, err := syscall.Getpgid(pid)
	if err == nil && group > 1 && group != syscall.Getpgrp() {
		_ = syscall.Kill(-group, syscall.SIGKILL)
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
}
