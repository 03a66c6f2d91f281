package shim_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"k8s4r.io/k8s4r/internal/driver"
	"k8s4r.io/k8s4r/internal/driver/drivertest"
	"k8s4r.io/k8s4r/internal/shim"
	"k8s4r.io/k8s4r/internal/wire"
)

const patience = 20 * time.Second

func TestMain(m *testing.M) { drivertest.Main(m) }

// child is a shim without an agent that listens.
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

// spawnBy has a shim that waits for an attempt run the script.
func spawnBy(t *testing.T, spare *shim.Spare, script string, change ...func(*shim.Spec)) child {
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

// gone waits for the end of the shim.
func (c child) gone() shim.State {
	c.t.Helper()
	if !ended(c.pidfd) {
		c.t.Fatal("the shim does not end")
	}
	_, _ = syscall.Wait4(c.pid, nil, 0, nil)
	return c.state()
}

// ended waits until a process has.
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

// running waits until the task has written its file ready.
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

func TestWhatAShimSaysOfItsTask(t *testing.T) {
	c := spawn(t, "exit 7")
	s := c.gone()
	if !s.Begun || s.Shim == nil || s.Shim.PID != c.pid || s.Started == nil || s.Started.PID == 0 {
		t.Errorf("state = %+v, want all of a life in it", s)
	}
	if e := s.Exit; e == nil || e.Code != 7 || e.Cause != "" || e.At.Before(s.Started.At) {
		t.Errorf("exit = %+v, want 7", s.Exit)
	}
	if lives, err := shim.Lives(filepath.Join(c.dir, "shim")); lives || err != nil {
		t.Errorf("Lives = %v, %v of one that has ended", lives, err)
	}
}

func TestAnAttemptHasOneShim(t *testing.T) {
	c := spawn(t, "touch ready; exec sleep 600")
	if _, _, err := shim.Spawn(shim.Spec{Dir: filepath.Join(c.dir, "shim")}, "second", nil); !errors.Is(err, shim.ErrUsed) {
		t.Errorf("Spawn = %v, want ErrUsed", err)
	}
	c.running()
	if lives, err := shim.Lives(filepath.Join(c.dir, "shim")); !lives || err != nil {
		t.Errorf("Lives = %v, %v of one that runs", lives, err)
	}
}

func TestTheFirstCauseCountsAndTheShortestGrace(t *testing.T) {
	c := spawn(t, "trap '' TERM; touch ready; while :; do sleep 600; done")
	c.running()
	for _, o := range []shim.Order{{Stop: "First", Grace: time.Hour}, {Stop: "Second", Grace: 2 * time.Hour}, {Stop: "Third", Grace: time.Millisecond}} {
		must(t, o.Send(filepath.Join(c.dir, "shim")))
	}
	if e := c.gone().Exit; e == nil || e.Cause != "First" || !e.Killed || e.Signal != int(syscall.SIGKILL) {
		t.Errorf("ended as %+v, want killed because First", e)
	}
	if err := (shim.Order{Stop: "Late"}).Send(filepath.Join(c.dir, "shim")); !errors.Is(err, unix.ENXIO) {
		t.Errorf("an order to a shim that has ended: %v, want ENXIO", err)
	}
}

func TestAMachineThatGoesDownStopsTheTaskInOrder(t *testing.T) {
	c := spawn(t, "trap 'exit 3' TERM; touch ready; while :; do sleep 0.01; done")
	c.running()
	must(t, syscall.Kill(c.pid, syscall.SIGTERM))
	if e := c.gone().Exit; e == nil || e.Cause != wire.ReasonAgentStopped || e.Code != 3 {
		t.Errorf("ended as %+v, want 3 because AgentStopped", e)
	}
}

// lifecycle.md §6: the process that parents the task enforces the fence, so that it
// holds when the agent is stopped or killed.
func TestTheFence(t *testing.T) {
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
	t.Run("it falls so long after the last contact", func(t *testing.T) {
		last := shim.SinceBoot()
		c := spawn(t, "touch ready; exec sleep 600", fenced(last))
		e := c.gone().Exit
		if took := shim.SinceBoot() - last; e == nil || e.Cause != wire.ReasonOutOfContact || took < stopAfter {
			t.Errorf("ended as %+v after %v, want OutOfContact after %v", e, took, stopAfter)
		}
	})
	t.Run("contact moves it on", func(t *testing.T) {
		// Contacts of the future: one that a busy machine writes late would be none.
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
	t.Run("who was asleep when it fell has had its grace", func(t *testing.T) {
		for name, timeout := range map[string]time.Duration{"without a timeout": 0, "and when the time was up": time.Second} {
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
	t.Run("a robot that is out of contact starts nothing", func(t *testing.T) {
		for name, last := range map[string]time.Duration{"for too long": shim.SinceBoot() - 2*stopAfter, "since it booted": 0} {
			c := spawn(t, "touch ready; exec sleep 600", fenced(last))
			if s := c.gone(); s.Begun || s.Exit == nil || s.Exit.Cause != wire.ReasonOutOfContact {
				t.Errorf("%s: %+v, want nothing begun, and OutOfContact", name, s)
			}
		}
	})
}

func TestContactOfAnotherBootIsNone(t *testing.T) {
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

func TestATaskThatWritesWithoutEndKeepsItsTimeAndLittleOfIt(t *testing.T) {
	const kept = 1 << 20
	c := spawn(t, "touch ready; exec yes", func(s *shim.Spec) { s.LogBytes, s.Timeout = kept, time.Second })
	s := c.gone()
	if s.Exit == nil || s.Exit.Cause != wire.ReasonTimeout {
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

func TestTheStateReadsWhileItIsWritten(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "state"), []byte(`{"begun":true}`+"\n"+`{"exit":{"code":`), 0o600))
	if s, err := shim.ReadState(dir); err != nil || !s.Begun || s.Exit != nil {
		t.Errorf("ReadState = %+v, %v; want what is whole", s, err)
	}
}

func TestADamagedLineMayBeThatTheTaskBegins(t *testing.T) {
	dir := t.TempDir()
	lines := "{\"shim\":{\"pid\":7,\"startTicks\":8}}\n" + "\x00\x00\x00\n" + "{\"exit\":{\"code\":3}}\n"
	must(t, os.WriteFile(filepath.Join(dir, "state"), []byte(lines), 0o600))
	s, err := shim.ReadState(dir)
	if err != nil || !s.Begun || s.Shim == nil || s.Shim.PID != 7 || s.Exit == nil || s.Exit.Code != 3 {
		t.Errorf("ReadState = %+v, %v; want the lines that are whole, and begun", s, err)
	}
}
