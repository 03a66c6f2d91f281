package shim

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"k8s4r.io/k8s4r/internal/isolation"
)

// Spare is a shim that waits for its attempt: a program takes longer to start than
// a task should wait. It gets the attempt as one message, whole or not at all, and
// ends by itself when who has started it does first, however that ends.
type Spare struct {
	pid, pidfd int
	line       int // where it listens
}

// lineFD is where a shim listens.
const lineFD = 3

// program is this one, also when another has taken its place on the disk.
const program = "/proc/self/exe"

// environment makes the shim small: it has little to do, and there is one for
// each task. Nothing of the agent's own is in it: that may hold its token.
var environment = []string{"GOMAXPROCS=1", "GOGC=50"}

// nameRoom is what the command line of a shim keeps free for the name of its
// attempt.
var nameRoom = strings.Repeat(" ", 80)

// NewSpare starts a shim for an attempt of this kind that is not known yet.
func NewSpare(kind Kind) (*Spare, error) {
	line, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	// A copy of its end would let it be given to when it is dead.
	defer func() { _ = unix.Close(line[1]) }()
	s := &Spare{pidfd: -1, line: line[0]}
	if s.pid, err = s.fork(uintptr(line[1]), kind); err != nil {
		return nil, errors.Join(fmt.Errorf("start the task's shim: %w", err), unix.Close(s.line))
	}
	if s.pidfd < 0 {
		s.Close()
		return nil, errors.New("the kernel has no pidfd (Linux 5.4 or newer is needed)")
	}
	return s, nil
}

func (s *Spare) fork(line uintptr, kind Kind) (pid int, err error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer null.Close()
	sys := &syscall.SysProcAttr{Setsid: true, PidFD: &s.pidfd}
	if kind.Namespaces {
		sys.Cloneflags = isolation.ShimNamespaces
	}
	return syscall.ForkExec(cmp.Or(kind.Program, program), []string{"k8s4r-agent", Word, nameRoom}, &syscall.ProcAttr{
		Dir: "/", Env: environment, Files: []uintptr{null.Fd(), null.Fd(), null.Fd(), lineFD: line}, Sys: sys,
	})
}

// give sends it its attempt. The files are on their way from here on, also when
// we die: with them the lock, so that the attempt never looks free. An error: it
// has got nothing.
func (s *Spare) give(e errand, name string) error {
	rights := unix.UnixRights(int(e.spec.Fd()), int(e.lock.Fd()), int(e.log.Fd()), e.control)
	name = name[:min(len(name), len(nameRoom))]
	if err := unix.Sendmsg(s.line, []byte(name), rights, nil, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT); err != nil {
		return os.NewSyscallError("sendmsg", err)
	}
	_ = unix.Close(s.line)
	return nil
}

// Close ends one that was given nothing. Nil: there is none.
func (s *Spare) Close() {
	if s == nil {
		return
	}
	_ = unix.Close(s.line)
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

// takeErrand waits for what this shim is for, and goes by its name. No control: it
// is for nothing, because nobody is left who could say.
func takeErrand(line int) (spec Spec, control int, err error) {
	name := make([]byte, len(nameRoom))
	files := make([]byte, unix.CmsgSpace(4*4))
	n, m, _, _, err := unix.Recvmsg(line, name, files, unix.MSG_CMSG_CLOEXEC)
	for errors.Is(err, unix.EINTR) {
		n, m, _, _, err = unix.Recvmsg(line, name, files, unix.MSG_CMSG_CLOEXEC)
	}
	if err != nil || m == 0 {
		return spec, -1, os.NewSyscallError("recvmsg", err)
	}
	_ = unix.Close(line)
	fds, err := rightsOf(files[:m])
	if err != nil {
		return spec, -1, err
	}
	// The lock stays open, and nobody else's, until this process ends.
	memory, log, control := fds[0], fds[2], fds[3]
	if err := errors.Join(unix.Dup3(log, 1, 0), unix.Dup3(log, 2, 0), unix.Close(log)); err != nil {
		return spec, -1, fmt.Errorf("open the shim's own log: %w", err)
	}
	goBy(name[:n])
	spec, err = fromMemory[Spec](uintptr(memory))
	return spec, control, err
}

// rightsOf are the four descriptors of an errand.
func rightsOf(message []byte) ([]int, error) {
	all, err := unix.ParseSocketControlMessage(message)
	if err != nil {
		return nil, err
	}
	fds, err := unix.ParseUnixRights(&all[0])
	if err == nil && len(fds) != 4 {
		err = fmt.Errorf("given %d files, want 4", len(fds))
	}
	return fds, err
}

// goBy writes a name where the kernel reads the command line of this process, which
// is where Go has the strings of os.Args.
func goBy(name []byte) {
	if last := os.Args[len(os.Args)-1]; len(last) == len(nameRoom) {
		room := unsafe.Slice(unsafe.StringData(last), len(last))
		clear(room[copy(room, name):])
	}
}
