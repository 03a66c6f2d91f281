// Package realrobot runs a real agent that tests can kill, and finds the processes, shims and
// control groups that it leaves behind.
package realrobot

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/robot/proc"
	"k8s4r.io/k8s4r/internal/robot/shim"
	"k8s4r.io/k8s4r/internal/robot/shim/supervisor"
	"k8s4r.io/k8s4r/internal/testkit"
	"k8s4r.io/k8s4r/internal/testkit/fakeserver"
)

// Robot is one agent and its state directory.
type Robot struct {
	*testkit.Process
	t testing.TB
	// ID is the robot's id, which is unique on this machine.
	ID string
	// Dir is the agent's state directory.
	Dir string
}

// IDPattern matches the ids of all robots.
const IDPattern = "real-*"

// New returns a robot that is not started yet. Its broker and its identity are in args. Its tasks run
// as the user of the test. All leftovers are removed when the test ends.
func New(t testing.TB, args ...string) *Robot {
	t.Helper()
	// The id must be unique: agents of other test programs share the control groups.
	r := &Robot{t: t, ID: fmt.Sprintf("real-%d-%06x", os.Getpid(), rand.N(1<<24)), Dir: filepath.Join(t.TempDir(), "state")}
	t.Cleanup(r.removeLeftovers)
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	r.Process = testkit.NewProcess(t, append([]string{testkit.BinaryPath(t, "k8s4r-agent"), "--robot-id", r.ID,
		"--state-dir", r.Dir, "--heartbeat", "1s", "--task-user", me.Username}, args...)...)
	return r
}

// NewJoined is New for a robot that has joined and uses a broker whose authority has issued its
// certificate.
func NewJoined(t testing.TB, b *fakeserver.Broker, args ...string) *Robot {
	t.Helper()
	const renewals = "https://127.0.0.1:1" // never used: the certificate is valid for longer than any test
	r := New(t, append([]string{"--server", renewals, "--mqtt-url", "mqtts://" + b.TLSAddr}, args...)...)
	b.CA.WriteIdentity(r.Dir, r.ID)
	return r
}

// RemoveState removes all that the agent has stored, except for its identity.
func (r *Robot) RemoveState() error {
	testkit.UnmountTaskDirs(r.t, r.Dir)
	stored, err := os.ReadDir(r.Dir)
	for _, entry := range stored {
		if entry.Name() != "identity" {
			err = errors.Join(err, os.RemoveAll(filepath.Join(r.Dir, entry.Name())))
		}
	}
	return err
}

// removeLeftovers removes shims and control groups after the agent was killed.
func (r *Robot) removeLeftovers() {
	for _, dir := range r.shimDirs() {
		if err := supervisor.KillTask(dir, killTimeout); err != nil {
			r.t.Errorf("%v", err)
		}
	}
	for _, dir := range append(r.cgroupDirs("*"), r.cgroupDirs("")...) {
		os.Remove(dir)
		os.Remove(filepath.Dir(dir)) // fails while another agent uses it
	}
	testkit.UnmountTaskDirs(r.t, r.Dir)
}

// killTimeout bounds the time until killed processes disappear.
const killTimeout = 5 * time.Second

// CountOrphans returns the number of processes and shims that remain after all tasks have ended,
// and reports each as an error.
func (r *Robot) CountOrphans() int {
	var left map[string]bool
	for until := time.Now().Add(killTimeout); ; time.Sleep(10 * time.Millisecond) {
		left = r.LiveProcesses()
		if len(left) == 0 || time.Now().After(until) {
			break
		}
	}
	for what := range left {
		r.t.Errorf("leftover %s: %s", what, commandLine(what))
	}
	return len(left)
}

// LiveProcesses returns the pids and shim directories of the robot's running tasks.
func (r *Robot) LiveProcesses() map[string]bool {
	left := map[string]bool{}
	for _, pid := range proc.ListAll() {
		env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err == nil && bytes.Contains(env, []byte(supervisor.EnvTaskDir+"="+r.Dir)) {
			left[strconv.Itoa(pid)] = true
		}
	}
	for _, dir := range r.cgroupDirs("*") {
		pids, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		for _, pid := range strings.Fields(string(pids)) {
			left[pid] = true
		}
	}
	for _, dir := range r.shimDirs() {
		if lives, err := shim.IsRunning(dir); err != nil || lives {
			left[dir] = true
		}
	}
	return left
}

func (r *Robot) shimDirs() []string {
	found, _ := filepath.Glob(filepath.Join(r.Dir, "tasks", "*", "*", "shim"))
	return found
}

// cgroupDirs returns the control groups of this robot's tasks, of both cgroup versions.
func (r *Robot) cgroupDirs(task string) []string {
	v1, _ := filepath.Glob(filepath.Join("/sys/fs/cgroup/*/k8s4r", r.ID+"*", task))
	v2, _ := filepath.Glob(filepath.Join("/sys/fs/cgroup/k8s4r", r.ID+"*", task))
	return append(v1, v2...)
}

func commandLine(pid string) string {
	b, _ := os.ReadFile(filepath.Join("/proc", pid, "cmdline"))
	return strings.ReplaceAll(string(b), "\x00", " ")
}

// ShimDir returns the directory of the shim of a task's first attempt.
func (r *Robot) ShimDir(uid string) string { return filepath.Join(r.Dir, "tasks", uid, "1", "shim") }
