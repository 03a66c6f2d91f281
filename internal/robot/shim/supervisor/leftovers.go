package supervisor

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"k8s4r.io/k8s4r/internal/robot/proc"
)

// EnvTaskDir is the environment variable that holds Task.Dir. The children of a task inherit it;
// KillLeftovers finds them by it.
const EnvTaskDir = "K8S4R_TASK_DIR"

// Leftover is what an earlier agent recorded about a task that it had started.
type Leftover struct {
	Dir string // Task.Dir
	// PID and StartTicks identify the leader. If zero, the agent crashed before it recorded them.
	PID        int
	StartTicks uint64
}

// KillLeftovers kills the remaining processes of tasks that an earlier agent started during this
// boot, and waits up to wait until they are gone.
//
// The leader is found by PID and start time, everything else by its environment. KillLeftovers
// returns the number of processes that it killed, and an error if some are still there.
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
		left := findLeftovers(dirs, leaders)
		for _, pid := range left {
			seen[pid] = true
			killGroup(pid)
		}
		switch {
		case len(left) == 0:
			return len(seen), nil
		case time.Now().After(until):
			return len(seen), fmt.Errorf("processes %v of earlier tasks are still running %v after SIGKILL", left, wait)
		}
	}
}

// findLeftovers returns the running processes of these tasks.
func findLeftovers(dirs map[string]bool, leaders map[int]uint64) []int {
	return slices.DeleteFunc(proc.ListAll(), func(pid int) bool {
		return pid == os.Getpid() || !isLeader(pid, leaders) && !dirs[taskDir(pid)]
	})
}

func isLeader(pid int, leaders map[int]uint64) bool {
	want, ok := leaders[pid]
	return ok && proc.IsSame(pid, want)
}

// taskDir returns EnvTaskDir from the environment that a process was started with. It is empty if
// the variable is not set or the environment cannot be read.
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

// killGroup kills a process and its group, unless that is the group of the caller.
func killGroup(pid int) {
	group, err := syscall.Getpgid(pid)
	if err == nil && group > 1 && group != syscall.Getpgrp() {
		_ = syscall.Kill(-group, syscall.SIGKILL)
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
}
