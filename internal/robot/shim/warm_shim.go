package shim

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"k8s4r.io/k8s4r/internal/robot/isolation"
	"k8s4r.io/k8s4r/internal/robot/proc"
)

// WarmShim is a shim that waits for its attempt, because starting the program takes longer than a
// task should wait. It receives the attempt as one message, and exits if the agent exits or
// crashes before.
type WarmShim struct {
	pid, pidfd int
	socket     int // over which the attempt is sent
}

// requestFD is the descriptor on which a shim receives its attempt.
const requestFD = 3

// programFD is the descriptor of its program, and passedProgram the path to that. A descriptor that is not
// passed could be overwritten between fork and exec by one that is.
const (
	programFD     = 4
	passedProgram = "/proc/self/fd/4"
)

// ownProgram is the program of the process that opens it, even if its file has been replaced on disk.
const ownProgram = "/proc/self/exe"

// environment keeps the shim small, since each task has one. The agent's own environment is not
// passed on: it may hold its token.
var environment = []string{"GOMAXPROCS=1", "GOGC=50"}

// titleSpace is an argument of the shim that setProcTitle overwrites with the name of the attempt.
var titleSpace = strings.Repeat(" ", 80)

// StartWarmShim starts a shim of this kind that waits for its attempt.
func StartWarmShim(kind Kind) (*WarmShim, error) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	// With a copy of this end, sending to a shim that has exited would succeed.
	defer func() { _ = unix.Close(ends[1]) }()
	s := &WarmShim{pidfd: -1, socket: ends[0]}
	if s.pid, err = s.forkShim(uintptr(ends[1]), kind); err != nil {
		return nil, errors.Join(fmt.Errorf("start the task's shim: %w", err), unix.Close(s.socket))
	}
	if s.pidfd < 0 {
		s.Close()
		return nil, errors.New("the kernel does not support pidfds: Linux 5.4 or newer is required")
	}
	return s, nil
}

func (s *WarmShim) forkShim(socket uintptr, kind Kind) (pid int, err error) {
	null, err := proc.Open(os.DevNull, unix.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer func() { _ = unix.Close(null) }()
	program, err := proc.Open(cmp.Or(kind.Program, ownProgram), unix.O_PATH, 0)
	if err != nil {
		return 0, err
	}
	defer func() { _ = unix.Close(program) }()
	sys := &syscall.SysProcAttr{Setsid: true, PidFD: &s.pidfd}
	if kind.Namespaces {
		sys.Cloneflags = isolation.ShimNamespaces
	}
	defer allowLateTimers()()
	return syscall.ForkExec(passedProgram, []string{"k8s4r-agent", Subcommand, titleSpace}, &syscall.ProcAttr{
		Dir: "/", Env: environment, Sys: sys,
		Files: []uintptr{uintptr(null), uintptr(null), uintptr(null), requestFD: socket, programFD: uintptr(program)},
	})
}

// lateTimers is by how many nanoseconds the timers of a shim may be late. A thread of Go's runtime looks
// after the others every 20 µs while there is work, which costs a short task as much as its shim. It
// inherits this, and all deadlines of a shim are longer.
const lateTimers = 5_000_000

// allowLateTimers lets the timers of what the calling thread forks be late, until the returned function
// is called.
func allowLateTimers() (restore func()) {
	runtime.LockOSThread()
	own := timerSlack()
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, lateTimers, 0, 0, 0)
	return func() {
		_ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(own), 0, 0, 0)
		runtime.UnlockOSThread()
	}
}

// timerSlack returns by how many nanoseconds the timers of the calling thread may be late.
func timerSlack() int {
	slack, _ := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0) // every kernel has this call
	return slack
}

// sendRequest sends the attempt to the shim. On an error the shim has received nothing. Once sent,
// the files reach the shim even if the agent crashes. The lock is one of them, so no other agent
// can start the attempt.
func (s *WarmShim) sendRequest(r request, name string) error {
	fds := []int{int(r.spec.Fd()), r.lock, r.control}
	if r.agentProgram != nil {
		fds = append(fds, int(r.agentProgram.Fd()))
	}
	name = name[:min(len(name), len(titleSpace))]
	if err := unix.Sendmsg(s.socket, []byte(name), unix.UnixRights(fds...), nil, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT); err != nil {
		return os.NewSyscallError("sendmsg", err)
	}
	_ = unix.Close(s.socket)
	return nil
}

// Close kills a warm shim that received no attempt. If s is nil, Close does nothing.
func (s *WarmShim) Close() {
	if s == nil {
		return
	}
	_ = unix.Close(s.socket)
	_ = syscall.Kill(s.pid, syscall.SIGKILL)
	for {
		if _, err := syscall.Wait4(s.pid, nil, 0, nil); !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if s.pidfd >= 0 {
		_ = unix.Close(s.pidfd)
	}
}

// received is what a shim has received for its attempt.
type received struct {
	spec         Spec
	control      int    // negative: the agent exited without sending an attempt
	agentProgram string // the file of the agent's program
}

// receiveRequest waits for the attempt of this shim and renames the process after it.
func receiveRequest(socket int) (r received, err error) {
	r.control = -1
	name := make([]byte, len(titleSpace))
	n, fds, err := receiveFiles(socket, name)
	if err != nil || fds == nil {
		return r, err
	}
	_ = unix.Close(socket)
	if len(fds) != 3 && len(fds) != 4 {
		return r, fmt.Errorf("received %d files, want 3 or 4", len(fds))
	}
	memory, lock := fds[0], fds[1] // the lock stays open until this process exits
	if err := errors.Join(unix.Dup3(lock, 1, 0), unix.Dup3(lock, 2, 0)); err != nil {
		return r, fmt.Errorf("write what the shim prints to the lock file: %w", err)
	}
	setProcTitle(name[:n])
	r.control, r.agentProgram = fds[2], ownProgram
	if len(fds) == 4 {
		r.agentProgram = fmt.Sprintf("/proc/self/fd/%d", fds[3])
	}
	message, err := readMemfd(memory)
	if err == nil {
		r.spec, err = decodeSpec(message)
	}
	return r, err
}

// receiveFiles waits for a message of sendRequest, and returns the length of the name and the files.
// There are none if the agent has closed its end.
func receiveFiles(socket int, name []byte) (n int, fds []int, err error) {
	files := make([]byte, unix.CmsgSpace(4*4))
	n, m, _, _, err := unix.Recvmsg(socket, name, files, unix.MSG_CMSG_CLOEXEC)
	for errors.Is(err, unix.EINTR) {
		n, m, _, _, err = unix.Recvmsg(socket, name, files, unix.MSG_CMSG_CLOEXEC)
	}
	if err != nil || m == 0 {
		return n, nil, os.NewSyscallError("recvmsg", err)
	}
	all, err := unix.ParseSocketControlMessage(files[:m])
	if err != nil {
		return n, nil, err
	}
	fds, err = unix.ParseUnixRights(&all[0])
	return n, fds, err
}

// setProcTitle writes a name over the last argument of this process, where the kernel reads the
// command line. The strings of os.Args point to that memory.
func setProcTitle(name []byte) {
	if last := os.Args[len(os.Args)-1]; len(last) == len(titleSpace) {
		title := unsafe.Slice(unsafe.StringData(last), len(last))
		clear(title[copy(title, name):])
	}
}
