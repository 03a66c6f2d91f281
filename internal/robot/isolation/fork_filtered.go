//go:build amd64 || arm64

package isolation

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// forkFiltered starts a process in a group of version 2 with the filter on it.
//
// That is more than syscall.ForkExec can do: a child is born in a group only by
// clone3, which the filter denies to the thread that forks. So the child puts
// it on itself, between fork and exec. Moving it into the group afterwards
// would cost 12 ms on a host that is idle, since the kernel then waits for all
// processors.
func (f Confinement) forkFiltered(c Command) (pid, pidfd int, err error) {
	group, err := os.Open(f.Cgroup.V2)
	if err != nil {
		return 0, -1, &SetupError{"cgroup", err}
	}
	defer group.Close()
	prog, err := filter()
	if err != nil {
		return 0, -1, &SetupError{"system call filter", err}
	}
	e := &embryo{prog: prog, parent: uintptr(os.Getpid()), number: -1}
	e.birth = cloneArgs{
		flags: unix.CLONE_PIDFD | unix.CLONE_INTO_CGROUP, exitSignal: uint64(unix.SIGCHLD), cgroup: uint64(group.Fd()),
	}
	if err := e.execute(c); err != nil {
		return 0, -1, err
	}
	e.become(f.User)
	if err := e.hold(c.Files); err != nil {
		return 0, -1, &SetupError{"descriptors", err}
	}
	defer e.release()
	return e.bear()
}

// embryo is all that the child needs between fork and exec, made before: a
// child of a process with threads must not allocate or take a lock.
type embryo struct {
	birth  cloneArgs
	number int32 // its pidfd, which the kernel writes here
	parent uintptr

	path, dir  *byte // no dir: nil
	argv, envv []*byte
	files      []int // copies, above the numbers that they get
	result     int   // where it writes the errno of a failure

	other    bool // another user
	uid, gid uintptr
	groups   []uint32

	prog *unix.SockFprog
	mask unix.Sigset_t // of signals, before the fork
	fail int64         // the errno
}

// cloneArgs is the kernel's struct clone_args.
type cloneArgs struct {
	flags, pidfd, childTID, parentTID, exitSignal, stack, stackSize, tls, setTID, setTIDSize, cgroup uint64
}

func (e *embryo) execute(c Command) (err error) {
	if e.path, err = syscall.BytePtrFromString(c.Path); err != nil {
		return err
	}
	if e.argv, err = syscall.SlicePtrFromStrings(c.Args); err != nil {
		return err
	}
	if e.envv, err = syscall.SlicePtrFromStrings(c.Env); err != nil {
		return err
	}
	if c.Dir != "" {
		e.dir, err = syscall.BytePtrFromString(c.Dir)
	}
	return err
}

func (e *embryo) become(u *User) {
	if u != nil {
		e.other, e.uid, e.gid, e.groups = true, uintptr(u.UID), uintptr(u.GID), u.Groups
	}
}

func (e *embryo) hold(files []*os.File) error {
	for _, f := range files {
		fd, err := above(f, len(files))
		if err != nil {
			e.release()
			return err
		}
		e.files = append(e.files, fd)
	}
	return nil
}

func (e *embryo) release() {
	for _, fd := range e.files {
		_ = unix.Close(fd)
	}
}

// bear forks and waits until the child has executed the command or failed.
func (e *embryo) bear() (pid, pidfd int, err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return 0, -1, &SetupError{"start", err}
	}
	defer r.Close()
	e.result, err = above(w, len(e.files))
	_ = w.Close()
	if err != nil {
		return 0, -1, &SetupError{"start", err}
	}
	pid, errno := e.fork()
	_ = unix.Close(e.result)
	if errno != 0 {
		return 0, -1, errno
	}
	if err := outcome(r); err != nil {
		abort(pid, int(e.number))
		return 0, -1, err
	}
	return pid, int(e.number), nil
}

// outcome reads the errno of a child that failed. Of one that executes its
// command nothing comes, since the kernel closes the pipe then.
func outcome(r *os.File) error {
	var failed [8]byte
	switch _, err := io.ReadFull(r, failed[:]); {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return &SetupError{"start", err}
	}
	return syscall.Errno(binary.NativeEndian.Uint64(failed[:]))
}

// above copies a descriptor to a number above those that the child gets, so
// that it is not overwritten before its turn.
func above(f *os.File, files int) (int, error) {
	return unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, files)
}

// fork returns in the parent only. Signals are off meanwhile: the child has a
// copy of Go's handlers, and nothing that they need.
func (e *embryo) fork() (pid int, errno syscall.Errno) {
	all := unix.Sigset_t{}
	for i := range all.Val {
		all.Val[i] = ^all.Val[i]
	}
	syscall.ForkLock.Lock()
	defer syscall.ForkLock.Unlock()
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &all, &e.mask); err != nil {
		return 0, syscall.EINVAL
	}
	pid, errno = e.split()
	_ = unix.PthreadSigmask(unix.SIG_SETMASK, &e.mask, nil)
	return pid, errno
}

// split has two ends: the parent returns from it, the child becomes the
// command or exits. Nothing in it may grow the stack or touch the heap's
// bookkeeping.
//
//go:nosplit
//go:norace
func (e *embryo) split() (pid int, errno syscall.Errno) {
	// Not before: as a number it does not follow when Go moves a stack.
	e.birth.pidfd = uint64(uintptr(unsafe.Pointer(&e.number)))
	r, _, errno := unix.RawSyscall(unix.SYS_CLONE3, uintptr(unsafe.Pointer(&e.birth)), unsafe.Sizeof(e.birth), 0)
	if errno != 0 || r != 0 {
		return int(r), errno
	}
	e.fail = int64(e.grow())
	_, _, _ = unix.RawSyscall(unix.SYS_WRITE, uintptr(e.result), uintptr(unsafe.Pointer(&e.fail)), 8)
	for {
		_, _, _ = unix.RawSyscall(unix.SYS_EXIT_GROUP, 1, 0, 0)
	}
}

// grow runs in the child and returns only what went wrong.
//
//go:nosplit
//go:norace
func (e *embryo) grow() syscall.Errno {
	if _, _, errno := unix.RawSyscall(unix.SYS_SETSID, 0, 0, 0); errno != 0 {
		return errno
	}
	if e.other {
		if errno := e.change(); errno != 0 {
			return errno
		}
	}
	if e.dir != nil {
		if _, _, errno := unix.RawSyscall(unix.SYS_CHDIR, uintptr(unsafe.Pointer(e.dir)), 0, 0); errno != 0 {
			return errno
		}
	}
	// After the change of user, which takes it back.
	if _, _, errno := unix.RawSyscall(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0); errno != 0 {
		return errno
	}
	// A parent that ended before will not be told of any more.
	if r, _, _ := unix.RawSyscall(unix.SYS_GETPPID, 0, 0, 0); r != e.parent {
		return syscall.ESRCH
	}
	for i, fd := range e.files {
		if _, _, errno := unix.RawSyscall(unix.SYS_DUP3, uintptr(fd), uintptr(i), 0); errno != 0 {
			return errno
		}
	}
	return e.exec()
}

//go:nosplit
//go:norace
func (e *embryo) change() syscall.Errno {
	var groups unsafe.Pointer
	if len(e.groups) > 0 {
		groups = unsafe.Pointer(&e.groups[0])
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(e.groups)), uintptr(groups), 0); errno != 0 {
		return errno
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGID, e.gid, 0, 0); errno != 0 {
		return errno
	}
	_, _, errno := unix.RawSyscall(unix.SYS_SETUID, e.uid, 0, 0)
	return errno
}

//go:nosplit
//go:norace
func (e *embryo) exec() syscall.Errno {
	if _, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW, uintptr(unsafe.Pointer(e.prog))); errno != 0 {
		return errno
	}
	// The command would inherit that signals are off.
	if _, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK,
		uintptr(unsafe.Pointer(&e.mask)), 0, 8, 0, 0); errno != 0 {
		return errno
	}
	_, _, errno := unix.RawSyscall(unix.SYS_EXECVE, uintptr(unsafe.Pointer(e.path)),
		uintptr(unsafe.Pointer(unsafe.SliceData(e.argv))), uintptr(unsafe.Pointer(unsafe.SliceData(e.envv))))
	return errno
}
