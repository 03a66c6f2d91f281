// Package realrobot is a robot with its body: an agent that can be killed, and all
// that it leaves on its machine.
package realrobot

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/agent/shims"
	"k8s4r.io/k8s4r/internal/proc"
	"k8s4r.io/k8s4r/internal/shim"
	"k8s4r.io/k8s4r/internal/testkit"
)

// Robot is one robot.
type Robot struct {
	*testkit.Process
	t testing.TB
	// ID of the robot, which no other one on this machine has.
	ID string
	// Dir is the agent's state.
	Dir string
}

// New makes a robot that speaks to the broker at addr. It does not run yet. Its tasks
// run as who runs the test, and may write where that reads.
// What it leaves behind at the end is killed.
func New(t testing.TB, addr string, args ...string) *Robot {
	t.Helper()
	// Agents of other programs on this machine have control groups beside ours.
	r := &Robot{t: t, ID: fmt.Sprintf("real-%d-%06x", os.Getpid(), rand.N(1<<24)), Dir: filepath.Join(t.TempDir(), "state")}
	t.Cleanup(r.clear)
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	r.Process = testkit.NewProcess(t, append([]string{testkit.Binary(t, "k8s4r-agent"), "--robot-id", r.ID, "--mqtt-url", "mqtt://" + addr,
		"--state-dir", r.Dir, "--heartbeat", "1s", "--task-user", me.Username}, args...)...)
	return r
}

// clear leaves the machine as it was. The agent is dead by then.
func (r *Robot) clear() {
	for _, dir := range r.shims() {
		if err := shims.End(dir, grace); err != nil {
			r.t.Errorf("%v", err)
		}
	}
	for _, dir := range append(r.cgroups("*"), r.cgroups("")...) {
		os.Remove(dir)
		os.Remove(filepath.Dir(dir)) // fails while another agent has its own there
	}
}

// grace is what the kernel gets to take away processes that were killed.
const grace = 5 * time.Second

// Orphans counts what is still there of tasks that have all ended: processes, by
// their environment and by their control group, and shims.
func (r *Robot) Orphans() int {
	var left map[string]bool
	for until := time.Now().Add(grace); ; time.Sleep(10 * time.Millisecond) {
		left = r.Alive()
		if len(left) == 0 || time.Now().After(until) {
			break
		}
	}
	for what := range left {
		r.t.Errorf("%s is left over: %s", what, commandLine(what))
	}
	return len(left)
}

// Alive are the processes and shims of the robot's tasks.
func (r *Robot) Alive() map[string]bool {
	left := map[string]bool{}
	for _, pid := range proc.All() {
		env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err == nil && bytes.Contains(env, []byte(shims.EnvTaskDir+"="+r.Dir)) {
			left[strconv.Itoa(pid)] = true
		}
	}
	for _, dir := range r.cgroups("*") {
		pids, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		for _, pid := range strings.Fields(string(pids)) {
			left[pid] = true
		}
	}
	for _, dir := range r.shims() {
		if lives, err := shim.Lives(dir); err != nil || lives {
			left[dir] = true
		}
	}
	return left
}

func (r *Robot) shims() []string {
	found, _ := filepath.Glob(filepath.Join(r.Dir, "tasks", "*", "*", "shim"))
	return found
}

// cgroups are the control groups of this robot's tasks, in both versions.
func (r *Robot) cgroups(task string) []string {
	v1, _ := filepath.Glob(filepath.Join("/sys/fs/cgroup/*/k8s4r", r.ID+"*", task))
	v2, _ := filepath.Glob(filepath.Join("/sys/fs/cgroup/k8s4r", r.ID+"*", task))
	return append(v1, v2...)
}

func commandLine(pid string) string {
	b, _ := os.ReadFile(filepath.Join("/proc", pid, "cmdline"))
	return strings.ReplaceAll(string(b), "\x00", " ")
}

// Shim is the directory of the shim of a task's first attempt.
func (r *Robot) Shim(uid string) string { return filepath.Join(r.Dir, "tasks", uid, "1", "shim") }
