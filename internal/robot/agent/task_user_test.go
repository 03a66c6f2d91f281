package agent

import (
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"k8s4r.io/k8s4r/internal/isolation"
	"k8s4r.io/k8s4r/internal/tasklog"
	"k8s4r.io/k8s4r/internal/wire"
)

// open is a directory that others get to.
func open(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	must(t, os.Chmod(filepath.Dir(dir), 0o711))
	return dir
}

// closed is one in a directory that only its owner passes. It is not in /tmp, which
// tasks see another of.
func closed(t *testing.T) string {
	t.Helper()
	home, err := os.UserHomeDir()
	must(t, err)
	parent, err := os.MkdirTemp(home, "k8s4r-test-")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(parent) })
	return filepath.Join(parent, "state")
}

// endsFor is the end of a task on a robot whose tasks run as somebody, and what it
// wrote. The agent's state is in dir.
func endsFor(t *testing.T, taskUser, dir string, task wire.Task) (end wire.Status, out, work string) {
	t.Helper()
	s := newFakeServer(t)
	c := s.config(dir)
	c.TaskUser = taskUser
	startAgent(t, c)
	s.awaitRegistered(1)
	s.dispatch(task, 1)
	end = s.awaitEnd(task.Metadata.UID, 1)
	return end, output(t, dir, task.Metadata.UID, 1, tasklog.Stdout), places{dir}.work(task.Metadata.UID, 1)
}

func ownerOf(t *testing.T, path string) string {
	t.Helper()
	info, err := os.Stat(path)
	must(t, err)
	u, err := user.LookupId(strconv.FormatUint(uint64(info.Sys().(*syscall.Stat_t).Uid), 10))
	must(t, err)
	return u.Username
}

func TestATaskWithoutAUserIsNotTheAgent(t *testing.T) {
	prepared := func(w *wire.Task) {
		w.Spec.Templates = []wire.Template{{EmbeddedTmpl: "x", DestPath: "rendered"}}
	}
	for _, driver := range []string{"exec", "raw_exec"} {
		t.Run(driver, func(t *testing.T) {
			end, out, work := endsFor(t, "nobody", open(t), shell("t1", `id -un; echo mine > "$HOME/file"`, prepared, func(w *wire.Task) { w.Spec.Driver = driver }))
			if end.State != wire.ReportCompleted || out != "nobody\n" {
				t.Errorf("ended as %+v with %q, want nobody", end, out)
			}
			for _, path := range []string{work, filepath.Join(work, "file"), filepath.Join(work, "rendered")} {
				if is := ownerOf(t, path); is != "nobody" {
					t.Errorf("%s belongs to %s", path, is)
				}
			}
		})
	}
	t.Run("java", func(t *testing.T) {
		java := wire.Template{EmbeddedTmpl: "#!/bin/sh\nid -un\n", DestPath: "java", Perms: "0755"}
		end, out, _ := endsFor(t, "nobody", open(t), shell("t1", "", func(w *wire.Task) {
			w.Spec.Driver, w.Spec.Env = "java", map[string]string{"PATH": "${HOME}:/usr/bin:/bin"}
			w.Spec.Config, w.Spec.Templates = wire.TaskConfig{Java: &wire.JavaConfig{JarPath: "java"}}, []wire.Template{java}
		}))
		if end.State != wire.ReportCompleted || out != "nobody\n" {
			t.Errorf("ended as %+v with %q, want nobody", end, out)
		}
	})
	t.Run("one that names root is root", func(t *testing.T) {
		end, out, _ := endsFor(t, "nobody", open(t), shell("t1", "id -un", isolated, func(w *wire.Task) { w.Spec.User = "root" }))
		if end.State != wire.ReportCompleted || out != "root\n" {
			t.Errorf("ended as %+v with %q, want root", end, out)
		}
	})
	t.Run("where the agent's own is what it was given", func(t *testing.T) {
		end, out, _ := endsFor(t, "", open(t), shell("t1", "id -un", isolated))
		if end.State != wire.ReportCompleted || out != me(t)+"\n" {
			t.Errorf("ended as %+v with %q, want %s", end, out, me(t))
		}
	})
}

func TestAWayThatIsClosedToTheTasksUser(t *testing.T) {
	t.Run("exec sees one that is open", func(t *testing.T) {
		end, out, _ := endsFor(t, "nobody", closed(t), shell("t1", `cd "$HOME" && echo mine > file && cat file; ls "$HOME/../shim" 2>/dev/null || echo hidden`, isolated))
		if end.State != wire.ReportCompleted || out != "mine\nhidden\n" {
			t.Errorf("ended as %+v with %q", end, out)
		}
	})
	t.Run("raw_exec says which directory it is", func(t *testing.T) {
		end, _, work := endsFor(t, "nobody", closed(t), shell("t1", "exit 0"))
		shut := (&isolation.User{UID: 65534, GID: 65534}).Shut(work) // a home directory may be closed itself
		if shut == "" {
			t.Fatalf("%s is open", work)
		}
		if end.Reason != wire.ReasonStartFailed || !strings.Contains(end.Message, "user: nobody does not get to the task's directory, for "+shut+" is closed to others") {
			t.Errorf("ended as %+v, want StartFailed that names %s", end, shut)
		}
	})
}

// An engine confines such a task, and the agent fetched its artifacts as itself: any
// file of the robot.
func TestWhatAnEngineConfinesIsSetUpAsTheTasksUser(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	must(t, os.Chmod(filepath.Dir(secret), 0o755))
	must(t, os.Chmod(filepath.Dir(filepath.Dir(secret)), 0o711))
	must(t, os.WriteFile(secret, []byte("x"), 0o600))
	r := &runner{places: places{t.TempDir()}, taskUser: "nobody", host: isolation.Probe("task-user-test", t.TempDir())}
	defer r.host.Tree.Remove()
	task := run{attempt: 1, task: wire.Task{Metadata: wire.TaskMeta{UID: "t1"}, Spec: wire.TaskSpec{
		Driver: docker, User: "by-the-image", Config: wire.TaskConfig{Docker: &wire.DockerConfig{Image: "x"}},
		Artifacts: []wire.Artifact{{GetterSource: "file://" + secret}},
	}}}
	must(t, r.places.make("t1", 1))
	spec, err := r.spec(&task)
	must(t, err)
	if u := spec.Confinement.User; u == nil || u.Name != "nobody" || spec.Contained.User != "by-the-image" || spec.Confinement.Mounts == nil {
		t.Errorf("set up with %+v, contained %+v", spec.Confinement, spec.Contained)
	}
	task.task.Spec.Artifacts = nil
	if spec, err = r.spec(&task); err != nil || spec.Confinement.User != nil {
		t.Errorf("nothing to set up: %+v, %v", spec.Confinement, err)
	}
}

func TestTaskUserOfAnAgentThatIsRoot(t *testing.T) {
	c, err := parse([]string{"--robot-id", "r1"}, noEnv, os.Stdout)
	must(t, err)
	if want, err := isolation.DefaultUser(); err != nil || c.TaskUser != want || c.TaskUser == "" || c.taskUser() == "root" {
		t.Errorf("tasks run as %q, want %q (%v)", c.TaskUser, want, err)
	}
	for given, want := range map[string]string{"root": "", "0": "", "nobody": "nobody"} {
		c, err := parse([]string{"--robot-id", "r1", "--task-user", given}, noEnv, os.Stdout)
		if err != nil || c.TaskUser != want {
			t.Errorf("--task-user %s: %q (%v), want %q", given, c.TaskUser, err, want)
		}
	}
	file := filepath.Join(t.TempDir(), "agent.yaml")
	must(t, os.WriteFile(file, []byte("robotId: r1\ntaskUser: nosuchuser\n"), 0o600))
	_, err = parse([]string{"--config", file}, noEnv, os.Stdout)
	if want := file + `:2: taskUser: this robot has no "nosuchuser" in /etc/passwd; name a user who can, or leave it out`; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

func TestTheRobotSaysWhoTasksRunAs(t *testing.T) {
	s := newFakeServer(t)
	c := s.config(t.TempDir())
	c.TaskUser = "nobody"
	startAgent(t, c)
	s.awaitRegistered(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.registers[0].DeviceInfo; d == nil || d.TaskUser != "nobody" {
		t.Errorf("device %+v", d)
	}
}
