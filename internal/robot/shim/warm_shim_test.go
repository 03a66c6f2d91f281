package shim_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"k8s4r.io/k8s4r/internal/robot/shim"
)

func startWarmShim(t *testing.T) *shim.WarmShim {
	t.Helper()
	warm, err := shim.StartWarmShim(shim.Kind{})
	must(t, err)
	return warm
}

func TestSpawn_UsesWarmShim(t *testing.T) {
	warm := startWarmShim(t)
	c := spawnIn(t, warm, "touch ready; exec sleep 600")
	c.awaitReady()
	if c.pid != warm.PID() || c.state().Shim.PID != c.pid {
		t.Errorf("process %d is the shim, its state has %+v; want the warm shim %d", c.pid, c.state().Shim, warm.PID())
	}
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", c.pid))
	must(t, err)
	if want := "k8s4r-agent\x00shim\x00" + t.Name(); strings.TrimRight(string(line), "\x00") != want {
		t.Errorf("command line = %q, want %q", line, want)
	}
	comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", c.pid))
	must(t, err)
	if string(comm) != "k8s4r-shim\n" {
		t.Errorf("the process is named %q", comm)
	}
}

// A file in memory has only the path of a descriptor, which the shim must be able to execute.
func TestStartWarmShim_ExecutesAnOpenFile(t *testing.T) {
	program, err := os.Open("/proc/self/exe")
	must(t, err)
	defer program.Close()
	warm, err := shim.StartWarmShim(shim.Kind{Program: fmt.Sprintf("/proc/self/fd/%d", program.Fd())})
	must(t, err)
	if c := spawnIn(t, warm, "ls -l /proc/self/fd > fds"); c.awaitExit().Exit == nil || c.pid != warm.PID() {
		t.Errorf("process %d is the shim, with the state %+v; want the warm shim %d", c.pid, c.state(), warm.PID())
	} else if fds, err := os.ReadFile(filepath.Join(c.dir, "work", "fds")); err != nil || strings.Contains(string(fds), filepath.Base(os.Args[0])) {
		t.Errorf("the task has the descriptors\n%s%v", fds, err)
	}
}

// The agent may be killed right after it has sent an attempt. The next agent must not start the
// attempt again.
func TestSpawn_HoldsLockWhileRequestIsInFlight(t *testing.T) {
	warm := startWarmShim(t)
	must(t, syscall.Kill(warm.PID(), syscall.SIGSTOP))
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(warm.PID(), &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatalf("the warm shim was not stopped: %v, %v", status, err)
	}
	c := spawnIn(t, warm, "echo ran >> ran")
	dir := filepath.Join(c.dir, "shim")
	if isRunning, err := shim.IsRunning(dir); !isRunning || err != nil {
		t.Errorf("IsRunning = %v, %v while the request is in flight", isRunning, err)
	}
	if _, _, err := shim.Spawn(shim.Spec{Dir: dir}, "second", nil); !errors.Is(err, shim.ErrShimExists) {
		t.Errorf("Spawn = %v, want ErrUsed", err)
	}
	must(t, syscall.Kill(warm.PID(), syscall.SIGCONT))
	c.requireRanOnce()
}

func TestSpawn_ReplacesKilledWarmShim(t *testing.T) {
	warm := startWarmShim(t)
	must(t, syscall.Kill(warm.PID(), syscall.SIGKILL))
	must(t, unix.Waitid(unix.P_PID, warm.PID(), nil, unix.WEXITED|unix.WNOWAIT, nil))
	c := spawnIn(t, warm, "echo ran >> ran")
	c.requireRanOnce()
	if c.pid == warm.PID() {
		t.Errorf("the shim is process %d, which was killed", c.pid)
	}
}

// requireRanOnce waits for the exit of a task that appends a line to the file "ran".
func (c testShim) requireRanOnce() {
	c.t.Helper()
	if e := c.awaitExit().Exit; e == nil || e.Code != 0 {
		c.t.Errorf("exit = %+v, want 0", e)
	}
	if b, _ := os.ReadFile(filepath.Join(c.dir, "work", "ran")); string(b) != "ran\n" {
		c.t.Errorf("the task wrote %q, want one line", b)
	}
}

func TestWarmShim_ExitsWithoutAgent(t *testing.T) {
	warm := startWarmShim(t)
	if !awaitProcessExit(warm.CloseSocket()) {
		t.Fatal("the warm shim is still running without an agent")
	}
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(warm.PID(), &status, 0, nil); err != nil || status.ExitStatus() != 0 {
		t.Errorf("exit status = %v, %v; want 0", status, err)
	}
}

// The shim finds a daemonized process because it becomes the shim's testShim, without looking at
// every process of the robot. The process of this test has lost two parents.
func TestShim_KillsDaemonizedProcesses(t *testing.T) {
	c := spawn(t, "(setsid sleep 600 & echo $! > daemon) & wait; exit 3")
	if e := c.awaitExit().Exit; e == nil || e.Code != 3 {
		t.Errorf("exit = %+v, want 3", e)
	}
	b, err := os.ReadFile(filepath.Join(c.dir, "work", "daemon"))
	must(t, err)
	var daemon int
	if _, err := fmt.Sscan(string(b), &daemon); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(daemon, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("process %d is still running: %v", daemon, err)
	}
}
