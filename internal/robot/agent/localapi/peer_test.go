package localapi

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/agent/runner"
)

// testTimeout limits every wait. No test comes near it.
const testTimeout = time.Minute

const otherUID = 65534

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// fakeTasks is a robot with these tasks.
type fakeTasks []runner.LiveTask

func (f fakeTasks) ListTasks(context.Context) ([]runner.LiveTask, error) { return f, nil }

func (fakeTasks) Operate(_ context.Context, q runner.LocalRequest) (string, error) {
	return string(q.Action) + " by " + q.By + ": " + q.Reason, nil
}

func (fakeTasks) Read() *wire.LocalState { return &wire.LocalState{} }

// startServer serves a socket that every user of this machine can find, and that the members of a group
// may use.
func startServer(t *testing.T, gid *uint32, tasks taskSource) (socket string) {
	t.Helper()
	return startImpatientServer(t, gid, tasks, readTimeout)
}

// startUpdater serves a socket of an agent that can be updated.
func startUpdater(t *testing.T, gid *uint32, updates updater) (socket string) {
	t.Helper()
	return serve(t, &Server{Config: Config{Tasks: fakeTasks{}, Updates: updates}, gid: gid, readTimeout: readTimeout})
}

// startImpatientServer serves a socket with another timeout for what clients send.
func startImpatientServer(t *testing.T, gid *uint32, tasks taskSource, timeout time.Duration) (socket string) {
	t.Helper()
	return serve(t, &Server{Config: Config{Tasks: tasks}, gid: gid, readTimeout: timeout})
}

// serve serves a socket in a directory that is also that of all logs.
func serve(t *testing.T, s *Server) (socket string) {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "k8s4r-localapi-")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o755))
	socket = filepath.Join(dir, "local.sock")
	l, err := net.Listen("unix", socket)
	must(t, err)
	must(t, os.Chmod(socket, 0o600))
	s.RobotID, s.Group, s.State, s.Log = "r1", "operators", fakeTasks{}, slog.New(slog.DiscardHandler)
	s.LogDir = func(string, int32) string { return dir }
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return socket
}

// requestAs sends a request from a thread with other credentials, and returns the answer.
func requestAs(t *testing.T, uid, gid int, groups []uint32, socket, method, path string) (answer string, err error) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		for _, call := range []struct{ number, a, b, c uintptr }{
			{unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(unsafe.Pointer(unsafe.SliceData(groups))), 0},
			{unix.SYS_SETRESGID, uintptr(gid), uintptr(gid), uintptr(gid)},
			{unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)},
		} {
			if _, _, errno := unix.RawSyscall(call.number, call.a, call.b, call.c); errno != 0 {
				err = errno
				return
			}
		}
		answer, err = requestOnThread(socket, method, path)
	}()
	<-done
	return answer, err
}

// requestOnThread does without the poller of package net, so that the calling thread connects.
func requestOnThread(socket, method, path string) (string, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: socket}); err != nil {
		return "", err
	}
	if _, err := unix.Write(fd, []byte(method+" "+path+" HTTP/1.0\r\n\r\n")); err != nil {
		return "", err
	}
	var out []byte
	for buffer := make([]byte, 4096); ; {
		n, err := unix.Read(fd, buffer)
		if n <= 0 || err != nil {
			return string(out), err
		}
		out = append(out, buffer[:n]...)
	}
}

func needRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can act as another user")
	}
}

func TestServer_RefusesOtherUsers(t *testing.T) {
	needRoot(t)
	const operators = 4711
	gid := uint32(operators)
	for _, c := range []struct {
		name    string
		gid     *uint32
		uid     int
		own     int // group of its own
		groups  []uint32
		open    bool // the mode of the file does not protect the socket
		allowed bool
	}{
		{name: "another user, by the mode of the socket", gid: &gid, uid: otherUID, own: otherUID},
		{name: "another user, by its credentials", gid: &gid, uid: otherUID, own: otherUID, open: true},
		{name: "a member of other groups", gid: &gid, uid: otherUID, own: otherUID, groups: []uint32{4710, 4712}, open: true},
		{name: "a member of the group of root", gid: &gid, uid: otherUID, own: 0, open: true},
		{name: "a member of many other groups", gid: &gid, uid: otherUID, own: otherUID, groups: manyGroups(100), open: true},
		{name: "a user, without such a group", uid: otherUID, own: otherUID, groups: []uint32{operators}, open: true},
		{name: "a member of the group", gid: &gid, uid: otherUID, own: otherUID, groups: []uint32{operators}, allowed: true},
		{name: "a member of the group and many others", gid: &gid, uid: otherUID, own: otherUID, groups: append(manyGroups(100), operators), allowed: true},
		{name: "a user whose own group it is", gid: &gid, uid: otherUID, own: operators, allowed: true},
		{name: "root", gid: &gid, allowed: true},
		{name: "root without a group", allowed: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			socket := startServer(t, c.gid, fakeTasks{})
			if c.gid != nil {
				awaitMode(t, socket, 0o660)
			}
			if c.open {
				must(t, os.Chmod(socket, 0o666))
			}
			answer, err := requestAs(t, c.uid, c.own, c.groups, socket, "GET", "/tasks")
			switch {
			case c.allowed:
				if err != nil || !strings.Contains(answer, " 200 ") || !strings.Contains(answer, `"robotId":"r1"`) {
					t.Errorf("was refused: %v, %q", err, answer)
				}
			case c.open:
				if err != nil || !strings.Contains(answer, " 403 ") || !strings.Contains(answer, "(uid 65534) may not operate this robot") || strings.Contains(answer, "robotId") {
					t.Errorf("was not refused: %v, %q", err, answer)
				}
			case !errors.Is(err, unix.EACCES):
				t.Errorf("could connect: %v, %q", err, answer)
			}
		})
	}
}

// manyGroups returns n groups, more than peerGroups asks for at first.
func manyGroups(n int) (all []uint32) {
	for i := range n {
		all = append(all, uint32(5000+i))
	}
	return all
}

func awaitMode(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	for until := time.Now().Add(testTimeout); ; time.Sleep(time.Millisecond) {
		if info, err := os.Stat(path); err == nil && info.Mode().Perm() == mode {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("%s does not get mode %o", path, mode)
		}
	}
}

func TestPeer_IsNamed(t *testing.T) {
	if got := (Peer{UID: 0}).String(); got != "root (uid 0)" {
		t.Errorf("root is %q", got)
	}
	if got := (Peer{UID: 3999999999}).String(); got != "uid 3999999999" {
		t.Errorf("a user without a name is %q", got)
	}
}
