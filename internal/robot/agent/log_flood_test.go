package agent

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/agent/runner"
)

// floodBytes is how much a flooding task writes: several times what the robot keeps.
// K8S4R_TEST_FLOOD_BYTES overrides it, for measurements.
func floodBytes(t *testing.T) int64 {
	said := os.Getenv("K8S4R_TEST_FLOOD_BYTES")
	if said == "" {
		return 64 << 20
	}
	n, err := strconv.ParseInt(said, 10, 64)
	must(t, err)
	return n
}

// TestLogs_FloodIsBounded checks that a task that floods its log neither fills the disk nor
// delays other tasks, whether the server stores its log or not.
func TestLogs_FloodIsBounded(t *testing.T) {
	const keeps = 10 << 20 // of each attempt
	bytes := floodBytes(t)
	program := builtAgent(t)
	for _, c := range []struct {
		name, script string
		taken        bool
	}{
		{"in lines, and the server takes them", "yes 'the arm is at 12.5 degrees and moves on' | head -c %d", true},
		{"in lines, and the server stores none", "yes 'the arm is at 12.5 degrees and moves on' | head -c %d", false},
		{"without a line end", "head -c %d /dev/zero | tr '\\0' x", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, dir := newFakeServer(t), t.TempDir()
			s.setFields(func() { s.logging = c.taken })
			agent := exec.Command(program, "--robot-id", robot, "--mqtt-url", "mqtt://"+s.addr, "--state-dir", dir, "--on-stop=end", "--task-user", currentUser(t))
			must(t, agent.Start())
			t.Cleanup(func() { _ = agent.Process.Signal(os.Interrupt); _ = agent.Wait() })
			s.awaitRegistered(1)

			began := time.Now()
			s.dispatch(shell("flood", fmt.Sprintf(c.script, bytes)), 1)
			s.awaitRunning("flood", 1)
			var slowest time.Duration
			var disk, resident int64
			for n := 0; !hasEnded(s, "flood"); n++ {
				uid := fmt.Sprintf("t%d", n)
				asked := time.Now()
				s.dispatch(shell(uid, "true"), 1)
				s.awaitEnd(uid, 1)
				slowest = max(slowest, time.Since(asked))
				disk = max(disk, diskUsage(runner.StateDir(dir).LogDir("flood", 1)))
				resident = max(resident, residentOf(t, agent.Process.Pid))
			}
			end := s.awaitEnd("flood", 1)
			took := end.FinishedAt.Sub(began)
			t.Logf("%d MB in %v (%.0f MB/s); its log took %.1f MB at most, the agent %.1f MB; the slowest of other tasks was over in %v",
				bytes>>20, took.Round(time.Millisecond), float64(bytes)/1e6/took.Seconds(), float64(disk)/1e6, float64(resident)/1e6, slowest.Round(time.Millisecond))
			if end.State != wire.ReportCompleted {
				t.Errorf("it ended as %+v", end)
			}
			if disk > keeps+2<<20 {
				t.Errorf("its log took %d bytes, more than %d", disk, keeps)
			}
			if resident > 64<<20 {
				t.Errorf("the agent takes %d bytes", resident)
			}
		})
	}
}

// diskUsage returns the bytes that a directory occupies on the disk.
func diskUsage(dir string) (bytes int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, _ error) error {
		if d == nil {
			return nil // it has just gone
		}
		if info, err := d.Info(); err == nil {
			bytes += info.Sys().(*syscall.Stat_t).Blocks * 512
		}
		return nil
	})
	return bytes
}

// hasEnded reports whether a task has ended.
func hasEnded(s *fakeServer, uid string) bool {
	for _, r := range s.reportsAbout(uid, 1) {
		if r.IsTerminal() {
			return true
		}
	}
	return false
}

// builtAgent builds the program as it is released, and returns its path.
func builtAgent(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "k8s4r-agent")
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", path, "k8s4r.io/k8s4r/cmd/k8s4r-agent")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return path
}

// residentOf returns the resident memory of a process in bytes.
func residentOf(t *testing.T, pid int) int64 {
	t.Helper()
	var pages, resident int64
	statm, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	must(t, err)
	_, err = fmt.Sscan(string(statm), &pages, &resident)
	must(t, err)
	return resident * int64(os.Getpagesize())
}
