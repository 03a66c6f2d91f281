package agent

import (
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"k8s4r.io/k8s4r/internal/protocol/logs/record"
	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/agent/runner"
	"k8s4r.io/k8s4r/internal/robot/isolation"
)

// otherUser is a user of every system that is not the agent's.
const otherUser = "nobody"

// openDir returns a directory that other users can reach.
func openDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	must(t, os.Chmod(filepath.Dir(dir), 0o711))
	return dir
}

// closedDir returns a path in a directory that only its owner can pass. It is not in /tmp,
// because tasks have a /tmp of their own.
func closedDir(t *testing.T) string {
	t.Helper()
	home, err := os.UserHomeDir()
	must(t, err)
	parent, err := os.MkdirTemp(home, "k8s4r-test-")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(parent) })
	return filepath.Join(parent, "state")
}

// endsFor runs a task on a robot with this --task-user and returns its end, its output and
// its directory. The agent's state is in dir.
func endsFor(t *testing.T, taskUser, dir string, task wire.Task) (end wire.Status, out, work string) {
	t.Helper()
	s := newFakeServer(t)
	c := s.config(dir)
	c.TaskUser = taskUser
	startAgent(t, c)
	s.awaitRegistered(1)
	s.dispatch(task, 1)
	end = s.awaitEnd(task.Metadata.UID, 1)
	return end, output(t, dir, task.Metadata.UID, 1, record.Stdout), runner.StateDir(dir).WorkDir(task.Metadata.UID, 1)
}

func ownerOf(t *testing.T, path string) string {
	t.Helper()
	info, err := os.Stat(path)
	must(t, err)
	u, err := user.LookupId(strconv.FormatUint(uint64(info.Sys().(*syscall.Stat_t).Uid), 10))
	must(t, err)
	return u.Username
}

func TestTaskUser_IsNotTheAgentsUser(t *testing.T) {
	prepared := func(w *wire.Task) {
		w.Spec.Templates = []wire.Template{{EmbeddedTmpl: "x", DestPath: "rendered"}}
	}
	for _, driver := range []string{"exec", "raw_exec"} {
		t.Run(driver, func(t *testing.T) {
			end, out, work := endsFor(t, otherUser, openDir(t), shell("t1", `id -un; echo mine > "$HOME/file"`, prepared, func(w *wire.Task) { w.Spec.Driver = driver }))
			if end.State != wire.ReportCompleted || out != otherUser+"\n" {
				t.Errorf("ended as %+v with %q, want "+otherUser, end, out)
			}
			for _, path := range []string{work, filepath.Join(work, "file"), filepath.Join(work, "rendered")} {
				if is := ownerOf(t, path); is != otherUser {
					t.Errorf("%s belongs to %s", path, is)
				}
			}
		})
	}
	t.Run("java", func(t *testing.T) {
		java := wire.Template{EmbeddedTmpl: "#!/bin/sh\nid -un\n", DestPath: "java", Perms: "0755"}
		end, out, _ := endsFor(t, otherUser, openDir(t), shell("t1", "", func(w *wire.Task) {
			w.Spec.Driver, w.Spec.Env = "java", map[string]string{"PATH": "${HOME}:/usr/bin:/bin"}
			w.Spec.Config, w.Spec.Templates = wire.TaskConfig{Java: &wire.JavaConfig{JarPath: "java"}}, []wire.Template{java}
		}))
		if end.State != wire.ReportCompleted || out != otherUser+"\n" {
			t.Errorf("ended as %+v with %q, want "+otherUser, end, out)
		}
	})
	t.Run("one that names root is root", func(t *testing.T) {
		end, out, _ := endsFor(t, otherUser, openDir(t), shell("t1", "id -un", isolated, func(w *wire.Task) { w.Spec.User = "root" }))
		if end.State != wire.ReportCompleted || out != "root\n" {
			t.Errorf("ended as %+v with %q, want root", end, out)
		}
	})
	t.Run("where the agent's own is what it was given", func(t *testing.T) {
		end, out, _ := endsFor(t, "", openDir(t), shell("t1", "id -un", isolated))
		if end.State != wire.ReportCompleted || out != currentUser(t)+"\n" {
			t.Errorf("ended as %+v with %q, want %s", end, out, currentUser(t))
		}
	})
}

func TestTaskUser_ClosedParentDirectory(t *testing.T) {
	t.Run("exec sees one that is open", func(t *testing.T) {
		end, out, _ := endsFor(t, otherUser, closedDir(t), shell("t1", `cd "$HOME" && echo mine > file && cat file; ls "$HOME/../shim" 2>/dev/null || echo hidden`, isolated))
		if end.State != wire.ReportCompleted || out != "mine\nhidden\n" {
			t.Errorf("ended as %+v with %q", end, out)
		}
	})
	t.Run("raw_exec says which directory it is", func(t *testing.T) {
		end, _, work := endsFor(t, otherUser, closedDir(t), shell("t1", "exit 0"))
		shut := (&isolation.User{UID: 65534, GID: 65534}).FirstForbiddenDir(work) // a home directory may be closed itself
		if shut == "" {
			t.Fatalf("%s is open", work)
		}
		if end.Reason != wire.ReasonStartFailed || !strings.Contains(end.Message, "user: "+otherUser+" cannot reach the task's directory because "+shut+" is closed to other users") {
			t.Errorf("ended as %+v, want StartFailed that names %s", end, shut)
		}
	})
}

func TestTaskUser_DefaultForRoot(t *testing.T) {
	c, err := parseConfig([]string{"--robot-id", "r1"}, noEnv, os.Stdout)
	must(t, err)
	if want, err := isolation.DefaultUser(); err != nil || c.TaskUser != want || c.TaskUser == "" || c.effectiveTaskUser() == "root" {
		t.Errorf("tasks run as %q, want %q (%v)", c.TaskUser, want, err)
	}
	for given, want := range map[string]string{"root": "", "0": "", otherUser: otherUser} {
		c, err := parseConfig([]string{"--robot-id", "r1", "--task-user", given}, noEnv, os.Stdout)
		if err != nil || c.TaskUser != want {
			t.Errorf("--task-user %s: %q (%v), want %q", given, c.TaskUser, err, want)
		}
	}
	file := filepath.Join(t.TempDir(), "agent.yaml")
	must(t, os.WriteFile(file, []byte("robotId: r1\ntaskUser: nosuchuser\n"), 0o600))
	_, err = parseConfig([]string{"--config", file}, noEnv, os.Stdout)
	if want := file + `:2: taskUser: this robot has no "nosuchuser" in /etc/passwd; name an existing user, or remove it`; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// Users with the permission for one account must not become root through an account that the
// operator has given uid 0.
func TestUser_OtherNamesOfRootAreRefused(t *testing.T) {
	s, dir := newFakeServer(t), openDir(t)
	accounts := filepath.Join(openDir(t), "passwd")
	must(t, os.WriteFile(accounts, []byte("root:x:0:0::/root:/bin/sh\ntoor:x:0:0::/root:/bin/sh\n"+"nobody"+":x:65534:65534::/:/bin/sh\n"), 0o644))
	agent := agentProcess(t, s, dir, "--task-user", otherUser)
	agent.Args = append([]string{"sh", "-c", `mount --bind "$0" /etc/passwd && exec "$@"`, accounts}, agent.Args...)
	agent.Path = "/bin/sh"
	agent.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	must(t, agent.Start())
	s.awaitRegistered(1)
	for _, driver := range []string{"exec", "raw_exec"} {
		uid := strings.ReplaceAll(driver, "_", "-")
		s.dispatch(shell(uid, "id -u", func(w *wire.Task) { w.Spec.Driver, w.Spec.User = driver, "toor" }), 1)
		if end := s.awaitEnd(uid, 1); end.Reason != wire.ReasonStartFailed || !strings.Contains(end.Message, `user: "toor" is root on this robot`) {
			t.Errorf("%s: ended as %+v with %q, want StartFailed", driver, end, output(t, dir, uid, 1, record.Stdout))
		}
	}
	s.dispatch(shell("named", "id -u", func(w *wire.Task) { w.Spec.User = "0" }), 1)
	if end := s.awaitEnd("named", 1); end.State != wire.ReportCompleted || output(t, dir, "named", 1, record.Stdout) != "0\n" {
		t.Errorf("a task of user 0 ended as %+v", end)
	}
}

func TestTaskUser_IsReported(t *testing.T) {
	s := newFakeServer(t)
	c := s.config(t.TempDir())
	c.TaskUser = otherUser
	startAgent(t, c)
	s.awaitRegistered(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.registers[0].DeviceInfo; d == nil || d.TaskUser != otherUser {
		t.Errorf("device %+v", d)
	}
}
