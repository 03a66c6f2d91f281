// Package drivers tests the drivers that need more than the kernel: Debian's Docker engine, and
// java.
package drivers

import (
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"k8s4r.io/k8s4r/internal/robot/driver"
	"k8s4r.io/k8s4r/internal/robot/driver/drivertest"
)

func TestMain(m *testing.M) { drivertest.Main(m) }

// run runs a task without a shim until it ends. Its output is that of the test.
func run(t *testing.T, d driver.Driver, task driver.Task) driver.End {
	t.Helper()
	running := start(t, d, &task)
	awaitReadable(t, running.Done())
	return running.End()
}

func start(t *testing.T, d driver.Driver, task *driver.Task) driver.Running {
	t.Helper()
	fill(t, task)
	running, err := d.Start(*task)
	if err != nil {
		t.Fatal(err)
	}
	return running
}

// fill sets what every task has.
func fill(t *testing.T, task *driver.Task) {
	if task.Dir == "" {
		task.Dir = t.TempDir()
	}
	if task.Stdout == nil {
		task.Stdout, task.Stderr = os.Stdout, os.Stderr
	}
	if task.Env == nil {
		task.Env = map[string]string{}
	}
	task.Env["PATH"] = driver.DefaultPath
	task.Contained.Attempt = driver.Attempt{UID: attemptUID(t), Number: 1, Robot: "robot-1"}
	if task.Contained.TaskUser == "" {
		task.Contained.TaskUser = "65534:65534"
	}
}

func awaitReadable(t *testing.T, fd int) {
	t.Helper()
	const testTimeout = 60_000 // milliseconds
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, testTimeout)
	if n != 1 || err != nil {
		t.Fatalf("the task is still running: %v", err)
	}
}

func attemptUID(t *testing.T) string { return strings.ToLower(strings.ReplaceAll(t.Name(), "/", "-")) }

func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for until := time.Now().Add(30 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("waited 30 s for %s", what)
		}
	}
}
