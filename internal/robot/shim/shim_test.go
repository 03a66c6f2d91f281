package shim_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/driver"
	"k8s4r.io/k8s4r/internal/robot/driver/drivertest"
	"k8s4r.io/k8s4r/internal/robot/shim"
)

const testTimeout = 20 * time.Second

func TestMain(m *testing.M) { drivertest.Main(m) }

// testShim is a shim process that no agent watches.
type testShim struct {
	t     *testing.T
	dir   string
	pid   int
	pidfd int
}

func spawn(t *testing.T, script string, change ...func(*shim.Spec)) testShim {
	t.Helper()
	return spawnIn(t, nil, script, change...)
}

// spawnIn runs the script in a warm shim. If warm is nil, a new shim is started.
func spawnIn(t *testing.T, warm *shim.WarmShim, script string, change ...func(*shim.Spec)) testShim {
	t.Helper()
	dir := t.TempDir()
	spec := shim.Spec{
		Dir: filepath.Join(dir, "shim"), LogDir: filepath.Join(dir, "logs"), WorkDir: filepath.Join(dir, "work"), LastSeenDir: dir,
		Driver: "exec", Config: wire.TaskConfig{Exec: &wire.ExecConfig{Command: "sh", Args: []string{"-c", script}}},
		Env: map[string]string{"PATH": driver.DefaultPath}, KillTimeout: time.Minute,
	}
	for _, c := range change {
		c(&spec)
	}
	for _, d := range []string{spec.LogDir, spec.WorkDir} {
		must(t, os.Mkdir(d, 0o700))
	}
	pid, pidfd, err := shim.Spawn(spec, t.Name(), warm)
	must(t, err)
	c := testShim{t: t, dir: dir, pid: pid, pidfd: pidfd}
	t.Cleanup(func() {
		_ = shim.ControlRequest{Stop: "Cleanup"}.Send(spec.Dir)
		c.awaitExit()
		_ = unix.Close(pidfd)
	})
	return c
}

// awaitExit waits until the shim has exited and returns its last state.
func (c testShim) awaitExit() shim.State {
	c.t.Helper()
	if !awaitProcessExit(c.pidfd) {
		c.t.Fatalf("the shim is still running: %+v", c.state())
	}
	_, _ = syscall.Wait4(c.pid, nil, 0, nil)
	return c.state()
}

// awaitProcessExit waits until a process has exited. It returns false if it is still running after
// testTimeout.
func awaitProcessExit(pidfd int) bool {
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, int(testTimeout.Milliseconds()))
		if !errors.Is(err, unix.EINTR) {
			return n == 1
		}
	}
}

func (c testShim) state() shim.State {
	c.t.Helper()
	s, err := shim.ReadState(filepath.Join(c.dir, "shim"))
	must(c.t, err)
	return s
}

// awaitReady waits until the task has created the file "ready".
func (c testShim) awaitReady() {
	c.t.Helper()
	c.awaitFile("ready")
}

// awaitFile waits until the task has created a file.
func (c testShim) awaitFile(name string) {
	c.t.Helper()
	c.waitUntil("the task has created "+name, func() bool {
		_, err := os.Stat(filepath.Join(c.dir, "work", name))
		return err == nil
	})
}

// waitUntil polls until ok returns true.
func (c testShim) waitUntil(what string, ok func() bool) {
	c.t.Helper()
	for until := time.Now().Add(testTimeout); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			c.t.Fatalf("waited without success until %s: %+v", what, c.state())
		}
	}
}

// awaitFirstRead waits until the shim has read the last-seen file for the first time.
func (c testShim) awaitFirstRead() {
	c.t.Helper()
	for s := c.state(); !s.MayHaveStarted && s.Exit == nil; s = c.state() {
		time.Sleep(time.Millisecond)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestSpawn_RecordsShimStartAndExit(t *testing.T) {
	c := spawn(t, "exit 7")
	s := c.awaitExit()
	if !s.MayHaveStarted || s.Shim == nil || s.Shim.PID != c.pid || s.Started == nil || s.Started.PID == 0 {
		t.Errorf("state = %+v, want the shim, mayHaveStarted and started", s)
	}
	if e := s.Exit; e == nil || e.Code != 7 || e.StopReason != "" || e.At.Before(s.Started.At) {
		t.Errorf("exit = %+v, want 7", s.Exit)
	}
	if isRunning, err := shim.IsRunning(filepath.Join(c.dir, "shim")); isRunning || err != nil {
		t.Errorf("IsRunning = %v, %v after the exit", isRunning, err)
	}
}

func TestSpawn_RejectsSecondShim(t *testing.T) {
	c := spawn(t, "touch ready; exec sleep 600")
	if _, _, err := shim.Spawn(shim.Spec{Dir: filepath.Join(c.dir, "shim")}, "second", nil); !errors.Is(err, shim.ErrShimExists) {
		t.Errorf("Spawn = %v, want ErrUsed", err)
	}
	c.awaitReady()
	if isRunning, err := shim.IsRunning(filepath.Join(c.dir, "shim")); !isRunning || err != nil {
		t.Errorf("IsRunning = %v, %v of a running shim", isRunning, err)
	}
}

func TestStop_KeepsFirstReasonAndShortestGrace(t *testing.T) {
	c := spawn(t, "trap '' TERM; touch ready; while :; do sleep 600; done")
	c.awaitReady()
	for _, o := range []shim.ControlRequest{{Stop: "First", Grace: time.Hour}, {Stop: "Second", Grace: 2 * time.Hour}, {Stop: "Third", Grace: time.Millisecond}} {
		must(t, o.Send(filepath.Join(c.dir, "shim")))
	}
	if e := c.awaitExit().Exit; e == nil || e.StopReason != "First" || !e.Killed || e.Signal != int(syscall.SIGKILL) {
		t.Errorf("exit = %+v, want killed for reason First", e)
	}
	if err := (shim.ControlRequest{Stop: "Late"}).Send(filepath.Join(c.dir, "shim")); !errors.Is(err, unix.ENXIO) {
		t.Errorf("Send to a shim that has exited = %v, want ENXIO", err)
	}
}

func TestShim_StopsTaskOnSIGTERM(t *testing.T) {
	c := spawn(t, "trap 'exit 3' TERM; touch ready; while :; do sleep 0.01; done")
	c.awaitReady()
	must(t, syscall.Kill(c.pid, syscall.SIGTERM))
	if e := c.awaitExit().Exit; e == nil || e.StopReason != wire.ReasonAgentStopped || e.Code != 3 {
		t.Errorf("exit = %+v, want code 3 for reason AgentStopped", e)
	}
}

// The shim enforces the self-stop deadline, so that it also holds while the agent is stopped or
// after it is killed.
func TestShim_EnforcesSelfStopDeadline(t *testing.T) {
	const selfStopAfter = 300 * time.Millisecond
	withDeadline := func(last time.Duration) func(*shim.Spec) {
		return func(s *shim.Spec) {
			s.SelfStopAfter = selfStopAfter
			writeLastSeen(t, s.LastSeenDir, last)
		}
	}
	t.Run("the task is stopped selfStopAfter after the last acknowledged heartbeat", func(t *testing.T) {
		last := shim.SinceBoot()
		c := spawn(t, "touch ready; exec sleep 600", withDeadline(last))
		e := c.awaitExit().Exit
		if took := shim.SinceBoot() - last; e == nil || e.StopReason != wire.ReasonSelfStopped || took < selfStopAfter {
			t.Errorf("exit = %+v after %v, want SelfStopped after %v", e, took, selfStopAfter)
		}
	})
	t.Run("a later acknowledged heartbeat moves the deadline", func(t *testing.T) {
		// The first heartbeat is in the future, so that the second is written before the deadline.
		// On a machine that is too busy for that, the test starts again with more time.
		for ahead := 2 * time.Second; ; ahead *= 2 {
			first := shim.SinceBoot() + ahead
			c := spawn(t, "touch ready; exec sleep 600", withDeadline(first))
			c.awaitFirstRead()
			writeLastSeen(t, c.dir, first+time.Hour)
			if shim.SinceBoot() >= first+selfStopAfter {
				continue
			}
			for until := first + 2*selfStopAfter; shim.SinceBoot() < until; time.Sleep(selfStopAfter / 20) {
				if s := c.state(); s.Exit != nil {
					t.Fatalf("stopped before the deadline: %+v", s.Exit)
				}
			}
			return
		}
	})
	t.Run("a machine that slept past the deadline gets no further grace", func(t *testing.T) {
		for name, timeout := range map[string]time.Duration{"without a timeout": 0, "with a timeout": time.Second} {
			first := shim.SinceBoot() + 2*time.Second
			c := spawn(t, "trap '' TERM; touch ready; while :; do sleep 600; done", withDeadline(first), func(s *shim.Spec) { s.Timeout = timeout })
			c.awaitReady()
			must(t, syscall.Kill(c.pid, syscall.SIGSTOP))
			writeLastSeen(t, c.dir, shim.SinceBoot()-time.Hour)
			for until := first + selfStopAfter; shim.SinceBoot() < until; {
				time.Sleep(selfStopAfter / 20)
			}
			must(t, syscall.Kill(c.pid, syscall.SIGCONT))
			if e := c.awaitExit().Exit; e == nil || !e.Killed || e.Signal != int(syscall.SIGKILL) {
				t.Errorf("%s: exit = %+v, want killed at once", name, e)
			}
		}
	})
	t.Run("nothing is started after the deadline", func(t *testing.T) {
		for name, last := range map[string]time.Duration{"acknowledged too long ago": shim.SinceBoot() - 2*selfStopAfter, "none since boot": 0} {
			c := spawn(t, "touch ready; exec sleep 600", withDeadline(last))
			if s := c.awaitExit(); s.MayHaveStarted || s.Exit == nil || s.Exit.StopReason != wire.ReasonSelfStopped {
				t.Errorf("%s: %+v, want SelfStopped without a start", name, s)
			}
		}
	})
}

func writeLastSeen(t *testing.T, dir string, at time.Duration) {
	t.Helper()
	file, err := shim.OpenLastSeenFile(dir)
	must(t, err)
	defer file.Close()
	must(t, file.Write(at, time.Time{}))
}

func TestLastSeenFile_IgnoresEarlierBoot(t *testing.T) {
	dir := t.TempDir()
	file, err := shim.OpenLastSeenFile(dir)
	must(t, err)
	defer file.Close()
	hardware := time.Unix(1700000000, 5).UTC()
	must(t, file.Write(time.Hour, hardware))
	if got := file.Read(); got != time.Hour {
		t.Errorf("Read = %v, want an hour", got)
	}
	if r, ok := file.ReadRecord(); !ok || r.At != time.Hour || !r.Hardware.Equal(hardware) || r.BootID == "" {
		t.Errorf("ReadRecord = %+v, %v", r, ok)
	}
	must(t, file.Write(-time.Minute, time.Time{}))
	if got := file.Read(); got != -time.Minute {
		t.Errorf("Read = %v, want a minute before boot", got)
	}
	for text, want := range map[string]shim.LastSeenRecord{
		"another 3600000000000 1700000000000000005\n": {BootID: "another", At: time.Hour, Hardware: hardware},
		"another 3600000000000\n":                     {BootID: "another", At: time.Hour},
	} {
		must(t, os.WriteFile(filepath.Join(dir, "last-seen"), []byte(text), 0o600))
		if got := file.Read(); got != 0 {
			t.Errorf("Read = %v after another boot, want 0", got)
		}
		if r, ok := file.ReadRecord(); !ok || r != want {
			t.Errorf("ReadRecord = %+v, %v, want %+v", r, ok, want)
		}
	}
	for _, text := range []string{"", "another"} {
		must(t, os.WriteFile(filepath.Join(dir, "last-seen"), []byte(text), 0o600))
		if r, ok := file.ReadRecord(); ok {
			t.Errorf("ReadRecord = %+v of %q", r, text)
		}
	}
}

func TestShim_EnforcesTimeoutAndLogSizeOfEndlessOutput(t *testing.T) {
	const kept = 1 << 20
	c := spawn(t, "touch ready; exec yes", func(s *shim.Spec) { s.LogBytes, s.Timeout = kept, time.Second })
	s := c.awaitExit()
	if s.Exit == nil || s.Exit.StopReason != wire.ReasonTimeout {
		t.Fatalf("exit = %+v, want Timeout", s.Exit)
	}
	var size int64
	files, _ := os.ReadDir(filepath.Join(c.dir, "logs"))
	for _, f := range files {
		info, err := f.Info()
		must(t, err)
		size += info.Size()
	}
	if size == 0 || size > kept+kept/5 {
		t.Errorf("the log has %d bytes, want up to %d", size, kept)
	}
}

func TestReadState_IgnoresPartialLine(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "state"), []byte(`{"v":2,"mayHaveStarted":true}`+"\n"+`{"v":2,"exit":{"code":`), 0o600))
	if s, err := shim.ReadState(dir); err != nil || !s.MayHaveStarted || s.Exit != nil {
		t.Errorf("ReadState = %+v, %v; want the complete line", s, err)
	}
}

func TestReadState_RejectsAnEarlierFormat(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "state"), []byte(`{"shim":{"pid":7,"startTicks":8}}`+"\n"+`{"begun":true}`+"\n"), 0o600))
	s, err := shim.ReadState(dir)
	if !errors.Is(err, shim.ErrOldFormat) || !strings.Contains(err.Error(), filepath.Join(dir, "state")) || s.Shim != nil {
		t.Errorf("ReadState = %+v, %v; want an error that names the file", s, err)
	}
}

func TestReadState_RefusesStateOfLaterVersion(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "state"), []byte(`{"v":2,"shim":{"pid":7}}`+"\n"+`{"v":3}`+"\n"), 0o600))
	if _, err := shim.ReadState(dir); !errors.Is(err, shim.ErrNewFormat) || !strings.Contains(err.Error(), dir) {
		t.Errorf("ReadState: %v, want an error that names the file", err)
	}
}

func TestReadState_DamagedLineMeansMayHaveStarted(t *testing.T) {
	dir := t.TempDir()
	lines := "{\"v\":2,\"shim\":{\"pid\":7,\"startTicks\":8}}\n" + "\x00\x00\x00\n" + "{\"v\":2,\"exit\":{\"code\":3}}\n"
	must(t, os.WriteFile(filepath.Join(dir, "state"), []byte(lines), 0o600))
	s, err := shim.ReadState(dir)
	if err != nil || !s.MayHaveStarted || s.Shim == nil || s.Shim.PID != 7 || s.Exit == nil || s.Exit.Code != 3 {
		t.Errorf("ReadState = %+v, %v; want the intact lines, and mayHaveStarted", s, err)
	}
}
