package isolation

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// ShimNamespaces are the SysProcAttr.Cloneflags of the process that calls
// Start for tasks that have a pid and ipc namespace of their own. It is pid 1
// there: when it ends, the kernel ends all of them. Its own /proc is still
// that of the host and shows it under another number. A task that is root can
// read its environment, which must hold no secrets.
const ShimNamespaces uintptr = unix.CLONE_NEWPID | unix.CLONE_NEWIPC

// Command is what to execute.
type Command struct {
	// Path is the file, as the task sees it.
	Path string
	// Find returns the Path where it is known only once one sees what the task
	// sees. Nil: it is Path. Start returns its error as it is.
	Find func() (string, error) `json:"-"`
	// Args start with the name of the program.
	Args []string
	// Env is the whole environment.
	Env []string
	// Dir is where it starts, as the task sees it. Empty: where we are, or at
	// the root with Mounts.
	Dir string
	// Files become its descriptors 0, 1, 2 ...
	Files []*os.File
	// Terminal: descriptor 0 is one, and controls the session.
	Terminal bool
}

// Confinement is what bounds a process. The zero value leaves it the rights of
// the caller.
type Confinement struct {
	// Cgroup is where it is born. Nil: where the caller is.
	Cgroup *Cgroup `json:"cgroup,omitempty"`
	// Mounts is what it sees of the file systems. Nil: what the caller sees.
	Mounts *Mounts `json:"mounts,omitempty"`
	// Enter is a process whose view of the host it has instead: its mounts, its
	// PID, IPC and UTS namespaces. Zero: none.
	Enter int `json:"enter,omitempty"`
	// Hostname is what it takes for the name of the host. Empty: that of the caller.
	Hostname string `json:"hostname,omitempty"`
	// User is who it runs as. Nil: who the caller is.
	User *User `json:"user,omitempty"`
	// NoNewPrivileges takes the effect from setuid programs, for it and all
	// that it starts.
	NoNewPrivileges bool `json:"noNewPrivileges,omitempty"`
	// Seccomp denies the system calls that act on the whole robot, and implies
	// NoNewPrivileges.
	Seccomp bool `json:"seccomp,omitempty"`
	// Rlimits bounds core files and open files. It binds the calling process
	// too, and for good: these limits belong to processes, not to threads.
	// Without it Go may have raised how many files a task opens.
	Rlimits bool `json:"rlimits,omitempty"`
}

// SetupError tells that a process could not be confined. It does not unwrap,
// so that nobody takes its cause for a fault of the task's command.
type SetupError struct {
	Step string // what was tried
	Err  error
}

func (e *SetupError) Error() string { return fmt.Sprintf("isolation: %s: %v", e.Step, e.Err) }

// Start starts a process, confined from its first instruction, as the leader
// of a session of its own. It inherits no descriptor that Go has opened. pidfd
// is for the caller to close, and pid to wait for.
//
// It ends at the latest when the caller's process does, but for a setuid
// program, which the kernel spares. What it has started ends then only with a
// pid namespace, or with Cgroup.Kill.
//
// The errors of fork, chdir and exec are of type syscall.Errno; any other
// trouble is a *SetupError.
func Start(c Command, f Confinement) (pid, pidfd int, err error) {
	type started struct {
		pid, pidfd int
		err        error
	}
	if c.Dir == "" && f.Mounts != nil {
		c.Dir = "/" // where we are may be hidden from it
	}
	result := make(chan started, 1)
	onOwnThread(func() {
		pid, pidfd, err := f.start(c)
		// The kernel sends Pdeathsig when the thread that forked ends, not the
		// process: a thread that were let go would take the task with it.
		stay := keep(pidfd, err)
		result <- started{pid, pidfd, err}
		stay()
	})
	r := <-result
	return r.pid, r.pidfd, r.err
}

// keep returns what waits until the process has ended. It has a descriptor of
// its own, since the caller may close its own at any time.
func keep(pidfd int, err error) func() {
	if err != nil {
		return func() {}
	}
	own, err := unix.FcntlInt(uintptr(pidfd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return func() { select {} } // rather a thread too many
	}
	return func() {
		ended(own, -1)
		_ = unix.Close(own)
	}
}

// ended tells whether a process has, waiting for that for so many
// milliseconds; -1 waits for ever.
func ended(pidfd, wait int) bool {
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, wait)
		if !errors.Is(err, unix.EINTR) {
			return n == 1
		}
	}
}

// onOwnThread runs f on an OS thread that ends with it, and that is not the
// main thread: Go cannot end that one, and it is what /proc shows of us.
func onOwnThread(f func()) {
	go func() {
		runtime.LockOSThread() // and never unlocks: Go then ends the thread
		if unix.Gettid() != unix.Getpid() {
			f()
			return
		}
		begun := make(chan struct{})
		go func() {
			runtime.LockOSThread()
			close(begun)
			f()
		}()
		<-begun // until then nobody else can run here
		runtime.UnlockOSThread()
	}()
}

// start confines the calling thread and forks.
func (f Confinement) start(c Command) (pid, pidfd int, err error) {
	seats, err := f.seats()
	if err != nil {
		return 0, -1, &SetupError{"cgroup", err}
	}
	defer seats.close()
	if err := f.confine(seats); err != nil {
		return 0, -1, err
	}
	if c.Find != nil {
		if c.Path, err = c.Find(); err != nil {
			return 0, -1, errors.Join(err, take(seats.home))
		}
	}
	if pid, pidfd, err = f.fork(c); err != nil {
		return 0, -1, err
	}
	// This thread lives on: the group would count it, never be empty, and who
	// kills the group would kill us.
	if err := take(seats.home); err != nil {
		abort(pid, pidfd)
		return 0, -1, &SetupError{"leave the cgroup", err}
	}
	return pid, pidfd, nil
}

func (f Confinement) seats() (*seats, error) {
	if v, ok := f.Cgroup.version().(v1); ok && len(v) > 0 {
		return v.seats()
	}
	return &seats{}, nil
}

// confine takes from the calling thread what its child is not to have. The
// filter is last, for it denies what the others need.
func (f Confinement) confine(seats *seats) error {
	steps := []struct {
		name string
		on   bool
		do   func() error
	}{
		{"cgroup", true, func() error { return take(seats.away) }},
		{"enter", f.Enter != 0, f.enter},
		{"host name", f.Hostname != "", f.name},
		{"mounts", f.Mounts != nil, f.Mounts.apply},
		{"resource limits", f.Rlimits, limitResources},
		{"no new privileges", f.NoNewPrivileges || f.Seccomp, noNewPrivileges},
		{"system call filter", f.Seccomp && !f.version2(), filterCalls},
	}
	for _, s := range steps {
		if !s.on {
			continue
		}
		if err := s.do(); err != nil {
			return &SetupError{s.name, err}
		}
	}
	return nil
}

func noNewPrivileges() error { return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }

func (f Confinement) version2() bool { return f.Cgroup != nil && f.Cgroup.V2 != "" }

// fork starts the process from the calling thread.
func (f Confinement) fork(c Command) (pid, pidfd int, err error) {
	if f.Seccomp && f.version2() {
		return f.forkFiltered(c)
	}
	pidfd = -1
	sys := &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL, PidFD: &pidfd, Credential: f.credential(), Setctty: c.Terminal}
	if f.Enter != 0 {
		// In another PID namespace nobody sees a parent, and Go would take it
		// that ours had ended.
		sys.Pdeathsig = 0
	}
	if f.version2() {
		group, err := os.Open(f.Cgroup.V2)
		if err != nil {
			return 0, -1, &SetupError{"cgroup", err}
		}
		defer group.Close()
		sys.UseCgroupFD, sys.CgroupFD = true, int(group.Fd())
	}
	files := make([]uintptr, len(c.Files))
	for i, file := range c.Files {
		files[i] = file.Fd()
	}
	pid, err = syscall.ForkExec(c.Path, c.Args, &syscall.ProcAttr{Dir: c.Dir, Env: c.Env, Files: files, Sys: sys})
	if err == nil && pidfd < 0 {
		abort(pid, pidfd)
		err = &SetupError{"start", errors.New("the kernel has no pidfd (Linux 5.4 or newer is needed)")}
	}
	if err != nil {
		return 0, -1, err
	}
	return pid, pidfd, nil
}

func (f Confinement) credential() *syscall.Credential {
	if f.User == nil {
		return nil
	}
	return &syscall.Credential{Uid: f.User.UID, Gid: f.User.GID, Groups: f.User.Groups}
}

// abort ends a process that the caller will never know of.
func abort(pid, pidfd int) {
	_ = unix.Kill(pid, unix.SIGKILL)
	for {
		if _, err := unix.Wait4(pid, nil, 0, nil); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if pidfd >= 0 {
		_ = unix.Close(pidfd)
	}
}
