package driver

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"k8s4r.io/k8s4r/internal/wire"
)

func startScript(t *testing.T, script string, env map[string]string) *Process {
	t.Helper()
	whole := map[string]string{"PATH": DefaultPath}
	for k, v := range env {
		whole[k] = v
	}
	p, err := Exec{}.Start(Task{
		Config: wire.TaskConfig{Exec: &wire.ExecConfig{Command: "sh", Args: []string{"-c", script}}},
		Dir:    t.TempDir(), Env: whole,
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func newSupervisor(t *testing.T) *Supervisor {
	t.Helper()
	s, err := NewSupervisor()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// collect waits for n exits.
func collect(t *testing.T, s *Supervisor, n int) []Exit {
	t.Helper()
	var all []Exit
	patience := time.After(20 * time.Second)
	for len(all) < n {
		select {
		case <-s.Ended():
			all = append(all, s.Exits()...)
		case <-patience:
			t.Fatalf("%d of %d processes ended", len(all), n)
		}
	}
	return all
}

func TestTheLoopIsThereOnlyWhileAProcessIs(t *testing.T) {
	s := newSupervisor(t)
	before := runtime.NumGoroutine()
	for range 3 {
		for range 20 {
			if err := s.Watch(startScript(t, "exit 0", nil), Limits{}); err != nil {
				t.Fatal(err)
			}
		}
		collect(t, s, 20)
	}
	for until := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > before; runtime.Gosched() {
		if time.Now().After(until) {
			t.Fatalf("%d goroutines, %d before anything ran", runtime.NumGoroutine(), before)
		}
	}
}

func TestDeadlinesAreExact(t *testing.T) {
	s := newSupervisor(t)
	const n = 50
	want := map[*Process]time.Duration{}
	for i := range n {
		p := startScript(t, "exec sleep 600", nil)
		want[p] = time.Duration(100+(i*37)%n*10) * time.Millisecond
		if err := s.Watch(p, Limits{Timeout: want[p], KillTimeout: time.Minute}); err != nil {
			t.Fatal(err)
		}
	}
	var worst time.Duration
	for _, e := range collect(t, s, n) {
		late := e.At.Sub(e.Process.StartedAt) - want[e.Process]
		worst = max(worst, late)
		if late < 0 || late > 100*time.Millisecond || e.Cause != CauseTimeout || e.Signal != int(syscall.SIGTERM) {
			t.Errorf("timeout %v: %v late, %+v", want[e.Process], late, e)
		}
	}
	t.Logf("latest by %v", worst)
}

func TestStop(t *testing.T) {
	t.Run("the first cause counts, and a shorter grace", func(t *testing.T) {
		s := newSupervisor(t)
		p := startScript(t, "trap '' TERM; echo > $READY; while :; do sleep 600; done", map[string]string{"READY": ready(t)})
		if err := s.Watch(p, Limits{}); err != nil {
			t.Fatal(err)
		}
		awaitReady(t)
		s.Stop(p, time.Hour, "First")
		s.Stop(p, 2*time.Hour, "Second")
		s.Stop(p, time.Millisecond, "Third")
		if e := collect(t, s, 1)[0]; e.Cause != "First" || !e.Killed {
			t.Errorf("ended as %+v, want killed because First", e)
		}
	})
	t.Run("a process that has ended by itself keeps its exit code and has no cause", func(t *testing.T) {
		s := newSupervisor(t)
		p := startScript(t, "exit 0", nil)
		for !p.over() {
			runtime.Gosched()
		}
		w := &watch{process: p}
		if w.terminate("Stopped") {
			t.Error("terminate claims to have ended a process that was over")
		}
		if err := s.Watch(p, Limits{}); err != nil {
			t.Fatal(err)
		}
		if e := collect(t, s, 1)[0]; e.Code != 0 || e.Cause != CauseNone {
			t.Errorf("ended as %+v, want 0 and no cause", e)
		}
		s.Stop(p, 0, "Stopped") // must not reach whoever has the number now
	})
	t.Run("a closed supervisor has killed everything and takes nothing", func(t *testing.T) {
		s := newSupervisor(t)
		p := startScript(t, "trap '' TERM; sleep 600", nil)
		if err := s.Watch(p, Limits{}); err != nil {
			t.Fatal(err)
		}
		s.Close()
		if Alive(p.PID) {
			t.Error("the process lives on")
		}
		late := startScript(t, "sleep 600", nil)
		if err := s.Watch(late, Limits{}); err == nil || Alive(late.PID) {
			t.Errorf("Watch = %v, alive = %v; want an error and a dead process", err, Alive(late.PID))
		}
	})
}

func ready(t *testing.T) string {
	return filepath.Join(os.TempDir(), "ready-"+strings.ReplaceAll(t.Name(), "/", "_"))
}

func awaitReady(t *testing.T) {
	t.Helper()
	path := ready(t)
	t.Cleanup(func() { _ = os.Remove(path) })
	for until := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if _, err := os.Stat(path); err == nil {
			return
		}
		if time.Now().After(until) {
			t.Fatal("the process is not ready")
		}
	}
}

func TestKillLeftovers(t *testing.T) {
	dir := t.TempDir()
	marked := startScript(t, "setsid sh -c 'sleep 600' & sleep 600", map[string]string{EnvTaskDir: dir})
	leader := startScript(t, "exec sleep 600", nil)
	bystander := startScript(t, "exec sleep 600", map[string]string{EnvTaskDir: dir + "/other"})
	recycled := startScript(t, "exec sleep 600", nil)
	t.Cleanup(func() {
		for _, p := range []*Process{marked, leader, bystander, recycled} {
			p.abort()
		}
	})
	for len(strays(map[string]bool{dir: true}, nil)) < 3 { // sh, sleep, and what setsid took out of the group
		runtime.Gosched()
	}
	n, err := KillLeftovers([]Leftover{
		{Dir: dir},
		{Dir: "/none/1", PID: leader.PID, StartTicks: leader.StartTicks},
		{Dir: "/none/2", PID: recycled.PID, StartTicks: recycled.StartTicks - 1},
	}, 10*time.Second)
	if err != nil || n < 4 {
		t.Errorf("KillLeftovers = %d, %v; want 4 or more", n, err)
	}
	if Alive(marked.PID) || Alive(leader.PID) {
		t.Error("a leftover lives on")
	}
	if left := strays(map[string]bool{dir: true}, nil); len(left) > 0 {
		t.Errorf("processes %v live on", left)
	}
	if !Alive(bystander.PID) || !Alive(recycled.PID) {
		t.Error("a process that is no leftover was killed")
	}
}

func TestBootIDAndStartTicksIdentifyAProcess(t *testing.T) {
	p := startScript(t, "exec sleep 600", nil)
	defer p.abort()
	ticks, err := startTicks(p.PID)
	if BootID() == "" || err != nil || ticks == 0 || ticks != p.StartTicks {
		t.Errorf("boot %q, ticks %d (%v), want those of the process: %d", BootID(), ticks, err, p.StartTicks)
	}
	if _, err := startTicks(0); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("startTicks(0) = %v, want not exist", err)
	}
}

// A child between fork and exec holds copies of all descriptors; so does this
// test.
func TestACopyOfADescriptorDoesNotEndTheNextProcess(t *testing.T) {
	s := newSupervisor(t)
	first := startScript(t, "read line < /dev/zero", nil)
	number := first.pidfd
	fd, err := unix.Dup(number)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := s.Watch(first, Limits{}); err != nil {
		t.Fatal(err)
	}
	s.Stop(first, 0, "Stopped")
	collect(t, s, 1)

	next := startScript(t, "exec sleep 600", nil)
	if err := unix.Dup3(next.pidfd, number, unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	_ = unix.Close(next.pidfd)
	next.pidfd = number
	if err := s.Watch(next, Limits{}); err != nil {
		t.Fatal(err)
	}
	other := startScript(t, "exit 0", nil)
	if err := s.Watch(other, Limits{}); err != nil {
		t.Fatal(err)
	}
	if e := collect(t, s, 1)[0]; e.Process != other {
		t.Errorf("a living process was reaped: %+v", e)
	}
	if err := unix.EpollCtl(s.epoll, unix.EPOLL_CTL_MOD, fd, &unix.EpollEvent{}); !errors.Is(err, unix.ENOENT) {
		t.Errorf("epoll answers %v about the copy, want that it knows nothing of it", err)
	}
}
