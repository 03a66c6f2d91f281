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

// forkFiltered starts a process in a cgroup of v2 with the filter installed.
//
// syscall.ForkExec cannot do that: only clone3 starts a child in a cgroup, and the filter denies
// clone3 to the thread that forks. So the child installs the filter itself, between fork and exec.
// Moving it into the cgroup after the fork would cost 12 ms on an idle host, since the kernel then
// waits for all CPUs.
func (f Confinement) forkFiltered(c Command) (pid, pidfd int, err error) {
	group, err := os.Open(f.Cgroup.V2)
	if err != nil {
		return 0, -1, &SetupError{"cgroup", err}
	}
	defer group.Close()
	e := &childSpec{prog: newFilterProgram(), parent: uintptr(os.Getpid()), number: -1}
	e.birth = cloneArgs{
		flags: unix.CLONE_PIDFD | unix.CLONE_INTO_CGROUP, exitSignal: uint64(unix.SIGCHLD), cgroup: uint64(group.Fd()),
	}
	if err := e.executeCommand(c); err != nil {
		return 0, -1, err
	}
	e.setUser(f.User)
	if err := e.holdFiles(c.Files); err != nil {
		return 0, -1, &SetupError{"descriptors", err}
	}
	defer e.releaseFiles()
	return e.forkAndWait()
}

// childSpec is everything that the child needs between fork and exec. It is prepared before, since
// the child of a multi-threaded process must not allocate or take a lock.
type childSpec struct {
	birth  cloneArgs
	number int32 // its pidfd; the kernel writes it
	parent uintptr

	path, dir  *byte // no dir: nil
	argv, envv []*byte
	files      []int // duplicates, above the numbers that they get in the child
	result     int   // pipe for the errno of a failure

	other    bool // runs as another user
	uid, gid uintptr
	groups   []uint32

	prog *unix.SockFprog
	mask unix.Sigset_t // signal mask before the fork
	fail int64         // the errno of a failure
}

// cloneArgs is the kernel's struct clone_args.
type cloneArgs struct {
	flags, pidfd, childTID, parentTID, exitSignal, stack, stackSize, tls, setTID, setTIDSize, cgroup uint64
}

func (e *childSpec) executeCommand(c Command) (err error) {
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

func (e *childSpec) setUser(u *User) {
	if u != nil {
		e.other, e.uid, e.gid, e.groups = true, uintptr(u.UID), uintptr(u.GID), u.Groups
	}
}

func (e *childSpec) holdFiles(files []*os.File) error {
	for _, f := range files {
		fd, err := dupAbove(f, len(files))
		if err != nil {
			e.releaseFiles()
			return err
		}
		e.files = append(e.files, fd)
	}
	return nil
}

func (e *childSpec) releaseFiles() {
	for _, fd := range e.files {
		_ = unix.Close(fd)
	}
}

// forkAndWait forks and waits until the child has executed the command or failed.
func (e *childSpec) forkAndWait() (pid, pidfd int, err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return 0, -1, &SetupError{"start", err}
	}
	defer r.Close()
	e.result, err = dupAbove(w, len(e.files))
	_ = w.Close()
	if err != nil {
		return 0, -1, &SetupError{"start", err}
	}
	pid, errno := e.forkBlocked()
	_ = unix.Close(e.result)
	if errno != 0 {
		return 0, -1, errno
	}
	if err := readErrno(r); err != nil {
		killAndReap(pid, int(e.number))
		return 0, -1, err
	}
	return pid, int(e.number), nil
}

// readErrno returns the errno of a child that failed. It returns nil after a successful exec,
// which closes the pipe.
func readErrno(r *os.File) error {
	var failed [8]byte
	switch _, err := io.ReadFull(r, failed[:]); {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return &SetupError{"start", err}
	}
	return syscall.Errno(binary.NativeEndian.Uint64(failed[:]))
}

// dupAbove duplicates a descriptor above the numbers that the child uses, so that it is not
// overwritten before it is used.
func dupAbove(f *os.File, files int) (int, error) {
	return unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, files)
}

// forkBlocked forks with all signals blocked, since the child has a copy of Go's signal handlers
// without the runtime state that they need. It returns only in the parent.
func (e *childSpec) forkBlocked() (pid int, errno syscall.Errno) {
	all := unix.Sigset_t{}
	for i := range all.Val {
		all.Val[i] = ^all.Val[i]
	}
	syscall.ForkLock.Lock()
	defer syscall.ForkLock.Unlock()
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &all, &e.mask); err != nil {
		return 0, syscall.EINVAL
	}
	pid, errno = e.cloneChild()
	_ = unix.PthreadSigmask(unix.SIG_SETMASK, &e.mask, nil)
	return pid, errno
}

// cloneChild returns in the parent. In the child it executes the command or exits. Nothing in it
// may grow the stack or allocate.
//
//go:nosplit
//go:norace
func (e *childSpec) cloneChild() (pid int, errno syscall.Errno) {
	// Not earlier: this number would not be updated if Go moved the stack.
	e.birth.pidfd = uint64(uintptr(unsafe.Pointer(&e.number)))
	r, _, errno := unix.RawSyscall(unix.SYS_CLONE3, uintptr(unsafe.Pointer(&e.birth)), unsafe.Sizeof(e.birth), 0)
	if errno != 0 || r != 0 {
		return int(r), errno
	}
	e.fail = int64(e.runChild())
	_, _, _ = unix.RawSyscall(unix.SYS_WRITE, uintptr(e.result), uintptr(unsafe.Pointer(&e.fail)), 8)
	for {
		_, _, _ = unix.RawSyscall(unix.SYS_EXIT_GROUP, 1, 0, 0)
	}
}

// runChild runs in the child. It returns only if something fails.
//
//go:nosplit
//go:norace
func (e *childSpec) runChild() syscall.Errno {
	if _, _, errno := unix.RawSyscall(unix.SYS_SETSID, 0, 0, 0); errno != 0 {
		return errno
	}
	if e.other {
		if errno := e.changeIdentity(); errno != 0 {
			return errno
		}
	}
	if e.dir != nil {
		if _, _, errno := unix.RawSyscall(unix.SYS_CHDIR, uintptr(unsafe.Pointer(e.dir)), 0, 0); errno != 0 {
			return errno
		}
	}
	// After the change of user, which resets it.
	if _, _, errno := unix.RawSyscall(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0); errno != 0 {
		return errno
	}
	// There is no signal if the parent exited before the prctl.
	if r, _, _ := unix.RawSyscall(unix.SYS_GETPPID, 0, 0, 0); r != e.parent {
		return syscall.ESRCH
	}
	for i, fd := range e.files {
		if _, _, errno := unix.RawSyscall(unix.SYS_DUP3, uintptr(fd), uintptr(i), 0); errno != 0 {
			return errno
		}
	}
	return e.execCommand()
}

//go:nosplit
//go:norace
func (e *childSpec) changeIdentity() syscall.Errno {
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
func (e *childSpec) execCommand() syscall.Errno {
	if _, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW, uintptr(unsafe.Pointer(e.prog))); errno != 0 {
		return errno
	}
	// The command would inherit the blocked signals.
	if _, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK,
		uintptr(unsafe.Pointer(&e.mask)), 0, 8, 0, 0); errno != 0 {
		return errno
	}
	_, _, errno := unix.RawSyscall(unix.SYS_EXECVE, uintptr(unsafe.Pointer(e.path)),
		uintptr(unsafe.Pointer(unsafe.SliceData(e.argv))), uintptr(unsafe.Pointer(unsafe.SliceData(e.envv))))
	return errno
}
