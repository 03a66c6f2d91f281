package isolation

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// state returns an agent's state directory with two tasks, and the mounts of the first one.
func state(t *testing.T) (dir, own string, m *Mounts) {
	t.Helper()
	dir = t.TempDir()
	own = filepath.Join(dir, "tasks", "t1")
	for _, d := range []string{own, filepath.Join(dir, "tasks", "t2"), filepath.Join(dir, "config")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	writeFile(t, filepath.Join(dir, "journal"), "secret\n")
	writeFile(t, filepath.Join(dir, "config", "token"), "secret\n")
	return dir, own, &Mounts{ReadOnly: true, Tmp: filepath.Join(dir, "replica"), Hidden: []string{dir, "/no/such/dir"}, Writable: []string{own}}
}

func TestMounts_MakeSystemReadOnly(t *testing.T) {
	if !allowed(t, FactReadOnlySystem) {
		return
	}
	_, own, m := state(t)
	before := mounted(t)
	c := sh(`
for f in /new /etc/new /usr/new /var/new /root/new /dev/new /sys/kernel/mm/ksm/run /proc/sys/kernel/hostname /proc/sysrq-trigger; do
	(echo h > $f) 2>/dev/null && echo wrote $f
done
for d in /sys/fs/cgroup /sys/fs/cgroup/*; do mkdir $d/new 2>/dev/null && echo made $d/new; done
mount -o remount,rw / 2>/dev/null && touch /new && echo got round
for f in new /tmp/new /var/tmp/new /dev/shm/new /dev/null; do echo x > $f || echo cannot write $f; done
exec 3<>/dev/ptmx || echo no terminals
echo 5 > /proc/self/oom_score_adj || echo cannot write its own part of proc
pwd`)
	c.Dir = own
	out, status := run(t, c, Confinement{Mounts: m, Seccomp: true})
	if out != own || status.ExitStatus() != 0 {
		t.Errorf("it prints %q (status %d), want %q", out, status, own)
	}
	if _, err := os.Stat(filepath.Join(own, "new")); err != nil {
		t.Errorf("what it wrote in its own directory is not there: %v", err)
	}
	if after := mounted(t); after != before {
		t.Errorf("mounts are left on the host:\n%s\nbefore:\n%s", after, before)
	}
}

func TestMounts_ShareTmpWithinReplica(t *testing.T) {
	if !allowed(t, FactPrivateTmp) {
		return
	}
	dir, _, m := state(t)
	mark := fmt.Sprintf("isolation-test-%d", os.Getpid())
	f := Confinement{Mounts: m}
	// Here, the task's own directory is below /tmp.
	requireOutput(t, "umask 077; ls /tmp /var/tmp | grep -v -e ^/ -e ^Test -e ^$; echo hello > /tmp/"+mark+"; echo x > /dev/shm/"+mark, f, "")
	requireOutput(t, "cat /tmp/"+mark+"; ls /var/tmp /dev/shm; stat -c %a /tmp /var/tmp", f, "hello\n/dev/shm:\n\n/var/tmp:\n1777\n1777")
	for _, host := range []string{"/tmp/", "/var/tmp/", "/dev/shm/"} {
		if _, err := os.Stat(host + mark); err == nil {
			t.Errorf("%s is on the host", host+mark)
		}
	}
	if b, _ := os.ReadFile(filepath.Join(dir, "replica", "tmp", mark)); string(b) != "hello\n" {
		t.Errorf("the replica's directory has %q", b)
	}
}

func TestMounts_UserReachesDirectoriesBelowClosedOnes(t *testing.T) {
	if !allowed(t, FactUser, FactPrivateTmp) {
		return
	}
	dir, own, m := state(t)
	u, err := LookupUser("nobody")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chown(own, int(u.UID), int(u.GID)), os.Chmod(dir, 0o700)); err != nil {
		t.Fatal(err)
	}
	c := sh("echo x > /tmp/x && echo y > mine && cat /tmp/x mine; echo z > /dev/shm/z")
	c.Dir = own
	if out, status := run(t, c, Confinement{Mounts: m, User: u, NoNewPrivileges: true}); out != "x\ny" || status.ExitStatus() != 0 {
		t.Errorf("it prints %q (status %d)", out, status)
	}
}

func TestMounts_HideAgentDirectories(t *testing.T) {
	if !allowed(t, FactMountNamespace) {
		return
	}
	dir, own, m := state(t)
	want := fmt.Sprintf("%s:\ntasks\n\n%s/tasks:\nt1", dir, dir)
	for _, tmp := range []string{m.Tmp, ""} {
		m.Tmp = tmp
		requireOutput(t, fmt.Sprintf("cd %s && ls . tasks | sed 's,^\\.:,%s:,; s,^tasks:,%s/tasks:,'", dir, dir, dir), Confinement{Mounts: m}, want)
		requireOutput(t, fmt.Sprintf("cat %[1]s/journal %[1]s/config/token 2>/dev/null; touch %[1]s/new 2>/dev/null; ls -d %[1]s/new 2>/dev/null; echo mine > %[2]s/mine; cat %[2]s/mine", dir, own),
			Confinement{Mounts: m}, "mine")
	}
	if b, _ := os.ReadFile(filepath.Join(dir, "journal")); string(b) != "secret\n" {
		t.Errorf("the agent itself reads %q", b)
	}
}

func TestStart_ShimIsPID1OfTasks(t *testing.T) {
	if !allowed(t, FactPIDNamespace, FactIPCNamespace, FactMountNamespace) {
		return
	}
	_, own, m := state(t)
	f := Confinement{Mounts: m, NoNewPrivileges: true, Seccomp: true, Rlimits: true}
	if host().Allows(FactCgroup) {
		f.Cgroup = newCgroup(t, host().Tree, Limits{Memory: 64 << 20})
	}
	c := shimCommand(t, order{Command: sh("[ $$ -lt 20 ] || echo pid $$; ls -d /proc/[0-9]* | wc -l; cat /proc/1/cmdline | tr '\\0' ' '; echo; kill -9 1; readlink /proc/self/ns/pid /proc/self/ns/ipc /proc/self/ns/mnt; ulimit -c; ulimit -n"), Confinement: f})
	c.SysProcAttr.Cloneflags = ShimNamespaces
	c.Dir = own
	lines := strings.Split(output(t, c), "\n")
	if len(lines) != 7 {
		t.Fatalf("it prints %q", lines)
	}
	// The shim, the shell, ls and wc.
	if len(lines[0]) > 1 || lines[0] > "5" || strings.TrimSpace(lines[1]) != "/proc/self/exe" {
		t.Errorf("it sees %s processes, the first is %q; want only its own and the shim", lines[0], lines[1])
	}
	for i, ns := range []string{"pid", "ipc", "mnt"} {
		if mine, _ := os.Readlink("/proc/self/ns/" + ns); lines[2+i] == mine {
			t.Errorf("its %s namespace is the host's", ns)
		}
	}
	if lines[5] != "0" || len(lines[6]) > len("65536") {
		t.Errorf("core size %s, open files %s", lines[5], lines[6])
	}
}

// The shim sees the whole host, and a task that is root sees the shim.
func TestMounts_HideRootDirectoryOfShim(t *testing.T) {
	if !allowed(t, FactPIDNamespace, FactMountNamespace) {
		return
	}
	dir, _, m := state(t)
	c := shimCommand(t, order{Command: sh(`
for p in /proc/1 /proc/1/task/*; do
	cat $p/root$1/journal $p/cwd/journal
	for fd in $p/fd/*; do readlink $fd; done
done 2>/dev/null
sleep 100 & ls -d /proc/$!/root/proc >/dev/null && echo but its own child is; kill $!`, dir), Confinement: Confinement{Mounts: m}})
	c.SysProcAttr.Cloneflags = ShimNamespaces
	c.Dir = dir
	if got := output(t, c); got != "but its own child is" {
		t.Errorf("it sees\n%s", got)
	}
}

// The fallback for kernels without mount_setattr.
func TestReadOnlyEach_MakesEveryMountReadOnly(t *testing.T) {
	if !allowed(t, FactMountNamespace) {
		return
	}
	dir := t.TempDir()
	result := make(chan error)
	runOnNewThread(func() {
		m := &Mounts{}
		if err := errors.Join(m.applyMounts(), makeEachReadOnly()); err != nil {
			result <- err
			return
		}
		for _, d := range []string{dir, "/dev/shm", "/proc/sys/kernel"} {
			var s unix.Statfs_t
			if err := unix.Statfs(d, &s); err != nil || s.Flags&unix.ST_RDONLY == 0 {
				result <- fmt.Errorf("%s is writable (%w)", d, err)
				return
			}
		}
		result <- nil
	})
	if err := <-result; err != nil {
		t.Error(err)
	}
	writeFile(t, filepath.Join(dir, "new"), "the host is as it was")
}

func TestStart_FailsIfMountsFail(t *testing.T) {
	dir := t.TempDir()
	_, _, err := Start(sh("touch $1/ran", dir), Confinement{Mounts: &Mounts{Writable: []string{dir + "/gone"}}})
	if _, ok := errors.AsType[*SetupError](err); !ok || errors.Is(err, unix.ENOENT) {
		t.Errorf("Start: %v, want a SetupError that is not taken for a missing command", err)
	}
	if _, err := os.Stat(dir + "/ran"); err == nil {
		t.Error("it ran")
	}
}
