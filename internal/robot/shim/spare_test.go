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

func newSpare(t *testing.T) *shim.WarmShim {
	t.Helper()
	spare, err := shim.NewSpare(shim.Kind{})
	must(t, err)
	return spare
}

func TestSpawn_UsesWarmShim(t *testing.T) {
	spare := newSpare(t)
	c := spawnBy(t, spare, "touch ready; exec sleep 600")
	c.running()
	if c.pid != spare.PID() || c.state().Shim.PID != c.pid {
		t.Errorf("process %d is the shim, by its own word %+v; want the spare %d", c.pid, c.state().Shim, spare.PID())
	}
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", c.pid))
	must(t, err)
	if want := "k8s4r-agent\x00shim\x00" + t.Name(); strings.TrimRight(string(line), "\x00") != want {
		t.Errorf("it goes by %q, want %q", line, want)
	}
}

// The agent may be killed right after it has sent an attempt. The next agent must not consider the
// attempt free and start it again.
func TestSpawn_HoldsLockWhileRequestIsInFlight(t *testing.T) {
	spare := newSpare(t)
	must(t, syscall.Kill(spare.PID(), syscall.SIGSTOP))
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(spare.PID(), &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatalf("the spare was not stopped: %v, %v", status, err)
	}
	c := spawnBy(t, spare, "echo ran >> ran")
	dir := filepath.Join(c.dir, "shim")
	if lives, err := shim.IsRunning(dir); !lives || err != nil {
		t.Errorf("Lives = %v, %v of an attempt that is on its way", lives, err)
	}
	if _, _, err := shim.Spawn(shim.Spec{Dir: dir}, "second", nil); !errors.Is(err, shim.ErrUsed) {
		t.Errorf("Spawn = %v, want ErrUsed", err)
	}
	must(t, syscall.Kill(spare.PID(), syscall.SIGCONT))
	c.ranOnce()
}

func TestSpawn_ReplacesKilledWarmShim(t *testing.T) {
	spare := newSpare(t)
	must(t, syscall.Kill(spare.PID(), syscall.SIGKILL))
	must(t, unix.Waitid(unix.P_PID, spare.PID(), nil, unix.WEXITED|unix.WNOWAIT, nil))
	c := spawnBy(t, spare, "echo ran >> ran")
	c.ranOnce()
	if c.pid == spare.PID() {
		t.Errorf("process %d, which was killed, is the shim", c.pid)
	}
}

// ranOnce waits for the end of a task that appends a line to the file "ran".
func (c child) ranOnce() {
	c.t.Helper()
	if e := c.gone().Exit; e == nil || e.Code != 0 {
		c.t.Errorf("exit = %+v, want 0", e)
	}
	if b, _ := os.ReadFile(filepath.Join(c.dir, "work", "ran")); string(b) != "ran\n" {
		c.t.Errorf("the task wrote %q, want one line", b)
	}
}

func TestWarmShim_ExitsWithoutAgent(t *testing.T) {
	spare := newSpare(t)
	if !ended(spare.Forsake()) {
		t.Fatal("it waits on when who has started it is gone")
	}
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(spare.PID(), &status, 0, nil); err != nil || status.ExitStatus() != 0 {
		t.Errorf("it ended with %v, %v; want 0", status, err)
	}
}

// The shim finds a daemonized process because it becomes the shim's child, without looking at
// every process of the robot. This one has lost two parents.
func TestShim_KillsDaemonizedProcesses(t *testing.T) {
	c := spawn(t, "(setsid sleep 600 & echo $! > aside) & wait; exit 3")
	if e := c.gone().Exit; e == nil || e.Code != 3 {
		t.Errorf("exit = %+v, want 3", e)
	}
	b, err := os.ReadFile(filepath.Join(c.dir, "work", "aside"))
	must(t, err)
	var aside int
	if _, err := fmt.Sscan(string(b), &aside); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(aside, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("process %d is left over: %v", aside, err)
	}
}
