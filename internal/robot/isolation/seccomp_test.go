//go:build amd64 || arm64

package isolation

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sort"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

func init() { roles["calls"], roles["x32"] = calls, x32 }

// calls prints the errors of calls. Their arguments are invalid, so they are harmless even if they
// are allowed.
func calls() {
	const bad = ^uintptr(0)
	for name, c := range map[string][4]uintptr{
		"mount":           {unix.SYS_MOUNT, bad, bad, bad},
		"umount2":         {unix.SYS_UMOUNT2, bad, bad, bad},
		"reboot":          {unix.SYS_REBOOT, 0, 0, 0},
		"kexec_load":      {unix.SYS_KEXEC_LOAD, bad, bad, bad},
		"init_module":     {unix.SYS_INIT_MODULE, bad, bad, bad},
		"bpf":             {unix.SYS_BPF, bad, bad, bad},
		"keyctl":          {unix.SYS_KEYCTL, bad, bad, bad},
		"perf_event_open": {unix.SYS_PERF_EVENT_OPEN, bad, bad, bad},
		"setns":           {unix.SYS_SETNS, bad, bad, bad},
		"swapon":          {unix.SYS_SWAPON, bad, bad, bad},
		"io_uring_setup":  {unix.SYS_IO_URING_SETUP, bad, bad, bad},
		"unshare user":    {unix.SYS_UNSHARE, unix.CLONE_NEWUSER | 1, 0, 0},
		"unshare files":   {unix.SYS_UNSHARE, unix.CLONE_FILES, 0, 0},
		"clone user":      {unix.SYS_CLONE, unix.CLONE_NEWUSER | unix.CLONE_FS, 0, 0},
		"clone3":          {unix.SYS_CLONE3, bad, bad, bad},
		"getpid":          {unix.SYS_GETPID, 0, 0, 0},
	} {
		_, _, errno := unix.RawSyscall(c[0], c[1], c[2], c[3])
		fmt.Printf("%s: %d\n", name, errno)
	}
	done := make(chan bool)
	go func() { runtime.LockOSThread(); close(done) }()
	<-done // threads can be created
}

func TestFilter_DeniesCalls(t *testing.T) {
	if !allowed(t, FactSeccomp) {
		return
	}
	out, status := run(t, self("calls"), Confinement{Seccomp: true})
	lines := strings.Split(out, "\n")
	sort.Strings(lines)
	want := `bpf: 1
clone user: 1
clone3: 38
getpid: 0
init_module: 1
io_uring_setup: 1
kexec_load: 1
keyctl: 1
mount: 1
perf_event_open: 1
reboot: 1
setns: 1
swapon: 1
umount2: 1
unshare files: 0
unshare user: 1`
	if got := strings.Join(lines, "\n"); got != want || status.ExitStatus() != 0 {
		t.Errorf("status %d and\n%s\nwant\n%s", status, got, want)
	}
	requireOutput(t, "unshare -m true 2>/dev/null || unshare -Ur true 2>/dev/null || echo no; grep -E 'NoNewPrivs|Seccomp:' /proc/self/status",
		Confinement{Seccomp: true}, "no\nNoNewPrivs:\t1\nSeccomp:\t2")
	requireOutput(t, "grep -E 'NoNewPrivs|Seccomp:' /proc/self/status", Confinement{}, "NoNewPrivs:\t0\nSeccomp:\t0")
}

// x32 makes a harmless call, getpid, with its number of another ABI.
func x32() {
	_, _, errno := unix.RawSyscall(0x40000000|unix.SYS_GETPID, 0, 0, 0)
	fmt.Println(errno)
}

func TestFilter_KillsOtherArchitectures(t *testing.T) {
	if !allowed(t, FactSeccomp) || runtime.GOARCH != "amd64" {
		return
	}
	out, status := run(t, self("x32"), Confinement{Seccomp: true})
	if status.Signal() != syscall.SIGSYS {
		t.Errorf("it ended with status %d and prints %q, want SIGSYS", status, out)
	}
}

// The filter is executed as a function, since the calls must not be tried on the host.
func TestFilter_ReturnValues(t *testing.T) {
	var raw []bpf.RawInstruction
	for _, i := range buildFilter() {
		raw = append(raw, bpf.RawInstruction{Op: i.Code, Jt: i.Jt, Jf: i.Jf, K: i.K})
	}
	program, all := bpf.Disassemble(raw)
	if !all {
		t.Fatalf("not all instructions are valid: %+v", program)
	}
	vm, err := bpf.NewVM(program)
	if err != nil {
		t.Fatal(err)
	}
	name := func(answer int) string {
		switch uint32(answer) {
		case allow.K:
			return "allow"
		case kill.K:
			return "kill"
		case refuse.K:
			return "EPERM"
		}
		return fmt.Sprintf("%x", answer)
	}
	for _, tc := range []struct {
		name            string
		arch, call, arg uint32
		want            string
	}{
		{"another architecture", 0x40000003, unix.SYS_GETPID, 0, "kill"},
		{"ptrace", auditArch, unix.SYS_PTRACE, 0, "allow"},
		{"finit_module", auditArch, unix.SYS_FINIT_MODULE, 0, "EPERM"},
		{"a thread", auditArch, unix.SYS_CLONE, unix.CLONE_VM | unix.CLONE_THREAD | unix.CLONE_SIGHAND, "allow"},
		{"a fork", auditArch, unix.SYS_CLONE, uint32(unix.SIGCHLD), "allow"},
		{"a network namespace", auditArch, unix.SYS_CLONE, unix.CLONE_NEWNET | uint32(unix.SIGCHLD), "EPERM"},
		{"a time namespace", auditArch, unix.SYS_UNSHARE, unix.CLONE_NEWTIME, "EPERM"},
	} {
		// The virtual machine reads in network byte order.
		data := make([]byte, 64)
		binary.BigEndian.PutUint32(data[0:], tc.call)
		binary.BigEndian.PutUint32(data[4:], tc.arch)
		binary.BigEndian.PutUint32(data[16:], tc.arg)
		if got, err := vm.Run(data); err != nil || name(got) != tc.want {
			t.Errorf("%s: %s (%v), want %s", tc.name, name(got), err, tc.want)
		}
	}
}

func TestNoNewPrivileges_DisablesSetuid(t *testing.T) {
	if !allowed(t, FactUser, FactNoNewPrivileges) {
		return
	}
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil { // so that uid 65534 can enter it
		t.Fatal(err)
	}
	b, err := os.ReadFile("/usr/bin/id")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/id", b, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir+"/id", 0o755|os.ModeSetuid); err != nil {
		t.Fatal(err)
	}
	unprivileged := &User{UID: 65534, GID: 65534}
	requireOutput(t, dir+"/id -u", Confinement{User: unprivileged}, "0") // without it the setuid bit has an effect
	requireOutput(t, dir+"/id -u", Confinement{User: unprivileged, NoNewPrivileges: true}, "65534")
}
