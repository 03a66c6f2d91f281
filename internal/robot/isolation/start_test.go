package isolation

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestStart_ReturnsErrnoOfExec(t *testing.T) {
	dir := t.TempDir()
	garbage := filepath.Join(dir, "garbage")
	writeFile(t, garbage, "\x7fnothing")
	lost := filepath.Join(dir, "lost")
	writeFile(t, lost, "#!/no/such/interpreter\n")
	if err := os.WriteFile(filepath.Join(dir, "data"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	full := Confinement{Rlimits: false, NoNewPrivileges: true, Seccomp: host().Allows(FactSeccomp)}
	if host().Allows(FactCgroup) {
		full.Cgroup = newCgroup(t, host().Tree, Limits{})
	}
	for _, f := range []Confinement{{}, full} {
		for path, want := range map[string]syscall.Errno{
			filepath.Join(dir, "none"): syscall.ENOENT, lost: syscall.ENOENT,
			garbage: syscall.ENOEXEC, filepath.Join(dir, "data"): syscall.EACCES,
		} {
			_, _, err := Start(Command{Path: path, Args: []string{"x"}}, f)
			if errno, ok := err.(syscall.Errno); !ok || errno != want { //nolint:errorlint // the very value is promised
				t.Errorf("%s: %v, want %v", path, err, want)
			}
		}
	}
	c := sh("true")
	c.Dir = filepath.Join(dir, "none")
	if _, _, err := Start(c, Confinement{}); !errors.Is(err, syscall.ENOENT) {
		t.Errorf("a directory that is missing: %v", err)
	}
}

func TestStart_TaskEndsWithShim(t *testing.T) {
	endsWithItsShim(t, Confinement{})
	if tree := unified(t); tree != nil && allowed(t, FactSeccomp) {
		endsWithItsShim(t, Confinement{Cgroup: newCgroup(t, tree, Limits{}), Seccomp: true})
	}
}

func endsWithItsShim(t *testing.T, f Confinement) {
	t.Helper()
	cmd := shimCommand(t, order{Command: sh("echo $$; exec cat"), Confinement: f})
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Fscanln(out, &pid); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if !hasEnded(fd, 10_000) {
		t.Error("the task is still running after its shim was killed")
	}
}

// In a PID namespace processes have other PIDs than outside.
func TestCgroup_KillSparesShim(t *testing.T) {
	if !allowed(t, FactCgroup, FactPIDNamespace) {
		return
	}
	f := Confinement{Cgroup: newCgroup(t, host().Tree, Limits{})}
	c := shimCommand(t, order{Command: sh("exec cat"), Confinement: f, Kill: true})
	c.SysProcAttr.Cloneflags = ShimNamespaces
	in, err := c.StdinPipe() // keeps cat waiting
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if got := output(t, c); got != "<nil>\nkilled" {
		t.Errorf("Kill() in the shim: %s", got)
	}
}

// The signal that ends a task with its shim is sent when the thread that forked exits. That must
// not happen while a thousand goroutines run.
func TestStart_TaskSurvivesOtherThreads(t *testing.T) {
	k := start(t, sh("exec cat"), Confinement{})
	for i := range 200 {
		done := make(chan bool)
		runOnNewThread(func() { close(done) })
		<-done
		fmt.Fprintln(k.in, i)
		if got := k.line(t); got != fmt.Sprint(i) {
			t.Fatalf("it prints %q", got)
		}
	}
	k.in.Close()
	if status := k.wait(t); !status.Exited() {
		t.Errorf("it ended with status %d", status)
	}
}

func TestStart_LeavesNoThread(t *testing.T) {
	threads := func() int { d, _ := os.ReadDir("/proc/self/task"); return len(d) }
	f := Confinement{NoNewPrivileges: true}
	if host().Allows(FactCgroup) {
		f.Cgroup = newCgroup(t, host().Tree, Limits{})
	}
	requireOutput(t, "true", f, "")
	before := threads()
	for range 50 {
		requireOutput(t, "true", f, "")
	}
	if after := threads(); after > before+10 {
		t.Errorf("%d threads after 50 tasks, %d before", after, before)
	}
	requireOutput(t, "grep NoNewPrivs /proc/self/status", Confinement{}, "NoNewPrivs:\t0")
}

func TestStart_TaskLeadsSession(t *testing.T) {
	k := start(t, sh("read x"), Confinement{})
	if sid, err := unix.Getsid(k.pid); sid != k.pid || err != nil {
		t.Errorf("its session is %d (%v), want %d", sid, err, k.pid)
	}
	if group, err := unix.Getpgid(k.pid); group != k.pid || err != nil {
		t.Errorf("its group is %d (%v), want %d", group, err, k.pid)
	}
	k.in.Close()
	k.wait(t)
}

func TestStart_TaskInheritsNoDescriptors(t *testing.T) {
	t.Setenv("AGENT_SECRET", "secret")
	f, err := os.Create(filepath.Join(t.TempDir(), "ours"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	requireOutput(t, "ls -l /proc/$$/fd 2>/dev/null | grep ours; env | grep SECRET; echo end", Confinement{}, "end")
}
