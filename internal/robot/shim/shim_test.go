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

const patience = 20 * time.Second

func TestMain(m *testing.M) { drivertest.Main(m) }

// child is a running shim that no agent watches.
type child struct {
	t     *testing.T
	dir   string
	pid   int
	pidfd int
}

func spawn(t *testing.T, script string, change ...func(*shim.Spec)) child {
	t.Helper()
	return spawnBy(t, nil, script, change...)
}

// spawnBy runs the script in a warm shim. If spare is nil, a new shim is started.
func spawnBy(t *testing.T, spare *shim.WarmShim, script string, change ...func(*shim.Spec)) child {
	t.Helper()
	dir := t.TempDir()
	spec := shim.Spec{
		Dir: filepath.Join(dir, "shim"), LogDir: filepath.Join(dir, "logs"), WorkDir: filepath.Join(dir, "work"), ContactDir: dir,
		Driver: "exec", Config: wire.TaskConfig{Exec: &wire.ExecConfig{Command: "sh", Args: []string{"-c", script}}},
		Env: map[string]string{"PATH": driver.DefaultPath}, KillTimeout: time.Minute,
	}
	for _, c := range change {
		c(&spec)
	}
	for _, d := range []string{spec.LogDir, spec.WorkDir} {
		must(t, os.Mkdir(d, 0o700))
	}
	pid, pidfd, err := shim.Spawn(spec, t.Name(), spare)
	must(t, err)
	c := child{t: t, dir: dir, pid: pid, pidfd: pidfd}
	t.Cleanup(func() {
		_ = shim.Order{Stop: "Cleanup"}.Send(spec.Dir)
		c.gone()
		_ = unix.Close(pidfd)
	})
	return c
}

// gone waits until the shim has exited.
func (c child) gone() shim.State {
	c.t.Helper()
	if !ended(c.pidfd) {
		c.t.Fatal("the shim does not end")
	}
	_, _ = syscall.Wait4(c.pid, nil, 0, nil)
	return c.state()
}

// ended waits until a process has exited, and reports whether it did in time.
func ended(pidfd int) bool {
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, int(patience.Milliseconds()))
		if !errors.Is(err, unix.EINTR) {
			return n == 1
		}
	}
}

func (c child) state() shim.State {
	c.t.Helper()
	s, err := shim.ReadState(filepath.Join(c.dir, "shim"))
	must(c.t, err)
	return s
}

// running waits until the task has created the file "ready".
func (c child) running() {
	c.t.Helper()
	for until := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		if _, err := os.Stat(filepath.Join(c.dir, "work", "ready")); err == nil {
			return
		}
		if time.Now().After(until) {
			c.t.Fatalf("the task does not run: %+v", c.state())
		}
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
	s := c.gone()
	if !s.MayHaveStarted || s.Shim == nil || s.Shim.PID != c.pid || s.Started == nil || s.Started.PID == 0 {
		t.Errorf("state = %+v, want all of a life in it", s)
	}
	if e := s.Exit; e == nil || e.Code != 7 || e.StopReason != "" || e.At.Before(s.Started.At) {
		t.Errorf("exit = %+v, want 7", s.Exit)
	}
	if lives, err := shim.IsRunning(filepath.Join(c.dir, "shim")); lives || err != nil {
		t.Errorf("Lives = %v, %v of one that has ended", lives, err)
	}
}

func TestSpawn_RejectsSecondShim(t *testing.T) {
	c := spawn(t, "touch ready; exec sleep 600")
	if _, _, err := shim.Spawn(shim.Spec{Dir: filepath.Join(c.dir, "shim")}, "second", nil); !errors.Is(err, shim.ErrUsed) {
		t.Errorf("Spawn = %v, want ErrUsed", err)
	}
	c.running()
	if lives, err := shim.IsRunning(filepath.Join(c.dir, "shim")); !lives || err != nil {
		t.Errorf("Lives = %v, %v of one that runs", lives, err)
	}
}

func TestStop_KeepsFirstCauseAndShortestGrace(t *testing.T) {
	c := spawn(t, "trap '' TERM; touch ready; while :; do sleep 600; done")
	c.running()
	for _, o := range []shim.Order{{Stop: "First", Grace: time.Hour}, {Stop: "Second", Grace: 2 * time.Hour}, {Stop: "Third", Grace: time.Millisecond}} {
		must(t, o.Send(filepath.Join(c.dir, "shim")))
	}
	if e := c.gone().Exit; e == nil || e.StopReason != "First" || !e.Killed || e.Signal != int(syscall.SIGKILL) {
		t.Errorf("ended as %+v, want killed because First", e)
	}
	if err := (shim.Order{Stop: "Late"}).Send(filepath.Join(c.dir, "shim")); !errors.Is(err, unix.ENXIO) {
		t.Errorf("an order to a shim that has ended: %v, want ENXIO", err)
	}
}

func TestShim_StopsTaskOnSIGTERM(t *testing.T) {
	c := spawn(t, "trap 'exit 3' TERM; touch ready; while :; do sleep 0.01; done")
	c.running()
	must(t, syscall.Kill(c.pid, syscall.SIGTERM))
	if e := c.gone().Exit; e == nil || e.StopReason != wire.ReasonAgentStopped || e.Code != 3 {
		t.Errorf("ended as %+v, want 3 because AgentStopped", e)
	}
}

// The shim enforces the self-stop deadline, so that it also holds while the agent is stopped or
// after it is killed.
func TestShim_EnforcesSelfStopDeadline(t *testing.T) {
	const stopAfter = 300 * time.Millisecond
	fenced := func(last time.Duration) func(*shim.Spec) {
		return func(s *shim.Spec) {
			s.StopAfter = stopAfter
			contact, err := shim.OpenContact(s.ContactDir)
			must(t, err)
			defer contact.Close()
			must(t, contact.Write(last))
		}
	}
	t.Run("the task is stopped stopAfter after the last contact", func(t *testing.T) {
		last := shim.SinceBoot()
		c := spawn(t, "touch ready; exec sleep 600", fenced(last))
		e := c.gone().Exit
		if took := shim.SinceBoot() - last; e == nil || e.StopReason != wire.ReasonSelfStopped || took < stopAfter {
			t.Errorf("ended as %+v after %v, want SelfStopped after %v", e, took, stopAfter)
		}
	})
	t.Run("a later contact moves the deadline", func(t *testing.T) {
		// The contacts are in the future: one that a busy machine writes too late would have no
		// effect.
		first := shim.SinceBoot() + 2*time.Second
		c := spawn(t, "touch ready; exec sleep 600", fenced(first))
		contact, err := shim.OpenContact(c.dir)
		must(t, err)
		defer contact.Close()
		must(t, contact.Write(first+time.Hour))
		for until := first + 2*stopAfter; shim.SinceBoot() < until; time.Sleep(stopAfter / 20) {
			if s := c.state(); s.Exit != nil {
				t.Fatalf("stopped while in contact: %+v", s.Exit)
			}
		}
	})
	t.Run("a machine that slept past the deadline gets no further grace", func(t *testing.T) {
		for name, timeout := range map[string]time.Duration{"without a timeout": 0, "with a timeout": time.Second} {
			first := shim.SinceBoot() + 2*time.Second
			c := spawn(t, "trap '' TERM; touch ready; while :; do sleep 600; done", fenced(first), func(s *shim.Spec) { s.Timeout = timeout })
			c.running()
			must(t, syscall.Kill(c.pid, syscall.SIGSTOP))
			contact, err := shim.OpenContact(c.dir)
			must(t, err)
			defer contact.Close()
			must(t, contact.Write(shim.SinceBoot()-time.Hour))
			for until := first + stopAfter; shim.SinceBoot() < until; {
				time.Sleep(stopAfter / 20)
			}
			must(t, syscall.Kill(c.pid, syscall.SIGCONT))
			if e := c.gone().Exit; e == nil || !e.Killed || e.Signal != int(syscall.SIGKILL) {
				t.Errorf("%s: ended as %+v, want killed at once", name, e)
			}
		}
	})
	t.Run("nothing is started after the deadline", func(t *testing.T) {
		for name, last := range map[string]time.Duration{"for too long": shim.SinceBoot() - 2*stopAfter, "since it booted": 0} {
			c := spawn(t, "touch ready; exec sleep 600", fenced(last))
			if s := c.gone(); s.MayHaveStarted || s.Exit == nil || s.Exit.StopReason != wire.ReasonSelfStopped {
				t.Errorf("%s: %+v, want nothing begun, and SelfStopped", name, s)
			}
		}
	})
}

func TestContact_IgnoresEarlierBoot(t *testing.T) {
	dir := t.TempDir()
	contact, err := shim.OpenContact(dir)
	must(t, err)
	defer contact.Close()
	must(t, contact.Write(time.Hour))
	if got := contact.Read(); got != time.Hour {
		t.Errorf("Read = %v, want an hour", got)
	}
	must(t, os.WriteFile(filepath.Join(dir, "contact"), []byte("another 3600000000000\n"), 0o600))
	if got := contact.Read(); got != 0 {
		t.Errorf("Read = %v of another boot, want 0", got)
	}
}

func TestShim_EnforcesTimeoutAndLogSizeOfEndlessOutput(t *testing.T) {
	const kept = 1 << 20
	c := spawn(t, "touch ready; exec yes", func(s *shim.Spec) { s.LogBytes, s.Timeout = kept, time.Second })
	s := c.gone()
	if s.Exit == nil || s.Exit.StopReason != wire.ReasonTimeout {
		t.Fatalf("ended as %+v, want Timeout", s.Exit)
	}
	if late := s.Exit.At.Sub(s.Started.At) - time.Second; late > 500*time.Millisecond {
		t.Errorf("ended %v late", late)
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
		t.Errorf("ReadState = %+v, %v; want what is whole", s, err)
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

func TestReadState_DamagedLineMeansMayHaveStarted(t *testing.T) {
	dir := t.TempDir()
	lines := "{\"v\":2,\"shim\":{\"pid\":7,\"startTicks\":8}}\n" + "\x00\x00\x00\n" + "{\"v\":2,\"exit\":{\"code\":3}}\n"
	must(t, os.WriteFile(filepath.Join(dir, "state"), []byte(lines), 0o600))
	s, err := shim.ReadState(dir)
	if err != nil || !s.MayHaveStarted || s.Shim == nil || s.Shim.PID != 7 || s.Exit == nil || s.Exit.Code != 3 {
		t.Errorf("ReadState = %+v, %v; want the lines that are whole, and begun", s, err)
	}
}
