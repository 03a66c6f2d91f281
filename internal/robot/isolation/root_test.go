package isolation

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// The mount points exist on the host, are missing, or are below links.
func TestMounts_BindFilesAndDirectories(t *testing.T) {
	if !allowed(t, FactMountNamespace) {
		return
	}
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "file"), "a file\n")
	writeFile(t, filepath.Join(dir, "there"), "covered\n")
	m := &Mounts{Binds: []Bind{
		{Source: filepath.Join(dir, "file"), Target: filepath.Join(dir, "there"), ReadOnly: true},
		{Source: dir, Target: "/not-of-the-host/a/b"},
		{Source: dir, Target: "/var/run/not-of-the-host", ReadOnly: true},
		{Source: filepath.Join(dir, "file"), Target: "/dev/not-of-the-host"},
	}}
	before := mounted(t)
	requireOutput(t, fmt.Sprintf(`cat %s/there /dev/not-of-the-host; echo more > /not-of-the-host/a/b/made
cat /var/run/not-of-the-host/made; (echo x > /var/run/not-of-the-host/no) 2>/dev/null || echo read-only
(echo x > %s/there) 2>/dev/null || echo read-only; ls -d /.k8s* 2>/dev/null; test -x /bin/sh && test -c /dev/null && echo whole`, dir, dir),
		Confinement{Mounts: m}, "a file\na file\nmore\nread-only\nread-only\nwhole")
	for _, path := range []string{"/not-of-the-host", "/run/not-of-the-host", "/dev/not-of-the-host"} {
		if _, err := os.Lstat(path); err == nil {
			t.Errorf("%s is on the host", path)
		}
	}
	if b, _ := os.ReadFile(filepath.Join(dir, "made")); string(b) != "more\n" {
		t.Errorf("what was written there is %q here", b)
	}
	if after := mounted(t); after != before {
		t.Errorf("mounts are left on the host:\n%s\nbefore:\n%s", after, before)
	}
}

// The mount point is a file or a directory, on a directory of the host or on one that it lacks.
func TestMounts_CreateMountPointBelowAnotherMount(t *testing.T) {
	if !allowed(t, FactMountNamespace) {
		return
	}
	dir, there := t.TempDir(), t.TempDir()
	writeFile(t, filepath.Join(dir, "file"), "a file\n")
	volumes := []string{t.TempDir(), t.TempDir()}
	m := &Mounts{Binds: []Bind{
		{Source: volumes[0], Target: "/not-of-the-host/app"},
		{Source: filepath.Join(dir, "file"), Target: "/not-of-the-host/app/config"},
		{Source: dir, Target: "/not-of-the-host/app/more"},
		{Source: volumes[1], Target: there},
		{Source: filepath.Join(dir, "file"), Target: there + "/config"},
	}}
	requireOutput(t, "cat /not-of-the-host/app/config /not-of-the-host/app/more/file "+there+"/config", Confinement{Mounts: m}, "a file\na file\na file")
}

// The path is replaced with a link after it was checked.
func TestMounts_SubPathCannotLeaveDirectory(t *testing.T) {
	if !allowed(t, FactMountNamespace) {
		return
	}
	dir, secret := t.TempDir(), t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "..data"), 0o755); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "..data", "file"), "a file\n")
	writeFile(t, filepath.Join(secret, "file"), "a secret\n")
	for name, to := range map[string]string{"file": "..data/file", "up": "..", "away": secret, "far": "../../../../../../" + secret, "self": "/proc/self/root"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	const at = "/not-of-the-host/f"
	for _, sub := range []string{"file", "..data/file"} {
		requireOutput(t, "cat "+at, Confinement{Mounts: &Mounts{Binds: []Bind{{Source: dir, Sub: sub, Target: at}}}}, "a file")
	}
	for _, sub := range []string{"up", "away", "away/file", "far/file", "self/etc", "../x", "/etc/passwd"} {
		f, err := (Bind{Source: dir, Sub: sub}).openSource()
		if !errors.Is(err, errLeadsOutside) {
			t.Errorf("%s is %v, %v", sub, f, err)
		}
	}
}

// A process in another PID namespace sees no parent.
func TestStart_EntersPIDNamespace(t *testing.T) {
	if !allowed(t, FactPIDNamespace, FactMountNamespace) {
		return
	}
	first := exec.Command("sleep", "600")
	first.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID}
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	defer first.Wait()
	defer first.Process.Kill()
	requireOutput(t, "sleep 0; test $$ -lt 10 && echo inside", Confinement{Enter: first.Process.Pid}, "inside")
}

// The second process sees the mounts and the host name of the first.
func TestStart_EntersMountsAndHostname(t *testing.T) {
	if !allowed(t, FactMountNamespace) {
		return
	}
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "file"), "inside\n")
	first := start(t, sh("echo ready; exec sleep 600"), Confinement{
		Hostname: "first", Mounts: &Mounts{Binds: []Bind{{Source: dir, Target: "/not-of-the-host"}}},
	})
	defer func() {
		_ = unix.Kill(first.pid, unix.SIGKILL)
		first.wait(t)
	}()
	first.line(t)
	requireOutput(t, "cat /not-of-the-host/file; uname -n", Confinement{Enter: first.pid}, "inside\nfirst")
	requireOutput(t, "ls /not-of-the-host 2>/dev/null || echo outside", Confinement{}, "outside")
}
