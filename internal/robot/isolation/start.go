package isolation

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// ShimNamespaces are the SysProcAttr.Cloneflags of a process that calls Start for tasks with their
// own PID and IPC namespace. It is PID 1 there: when it exits, the kernel kills all of them. Its
// own /proc is still that of the host, where it has another PID. A task that is root can read its
// environment, which must not hold secrets.
const ShimNamespaces uintptr = unix.CLONE_NEWPID | unix.CLONE_NEWIPC

// Command is what to execute.
type Command struct {
	// Path is the file, as the task sees it.
	Path string
	// Find returns the path if it can only be determined in the task's view of the host. If nil,
	// Path is used. Start returns the error of Find unchanged.
	Find func() (string, error) `json:"-"`
	// Args start with the name of the program.
	Args []string
	// Env is the complete environment.
	Env []string
	// Dir is the directory to start in, as the task sees it. If empty, it is the current
	// directory, or / with Mounts.
	Dir string
	// Files become its descriptors 0, 1, 2 ...
	Files []*os.File
	// Terminal reports whether descriptor 0 is a terminal, which becomes the controlling terminal
	// of the session.
	Terminal bool
	// CallerStays promises that the calling goroutine runs until the process has ended. Then Start
	// needs no thread of its own for a process whose thread is not changed for good.
	CallerStays bool
	// TimerSlack is by how many nanoseconds its timers may be late. If zero, it is that of the caller.
	TimerSlack int
}

// Confinement describes how a process is isolated. The zero value leaves it the rights of the
// caller.
type Confinement struct {
	// Cgroup is the cgroup that it starts in. If nil, it is that of the caller.
	Cgroup *Cgroup `json:"cgroup,omitempty"`
	// Mounts is its view of the file systems. If nil, it is that of the caller.
	Mounts *Mounts `json:"mounts,omitempty"`
	// Enter is the PID of a process whose mounts, PID, IPC and UTS namespaces it gets instead. If
	// zero, none.
	Enter int `json:"enter,omitempty"`
	// Hostname is the host name that it sees. If empty, it is that of the caller.
	Hostname string `json:"hostname,omitempty"`
	// User is the user that it runs as. If nil, it is that of the caller.
	User *User `json:"user,omitempty"`
	// NoNewPrivileges disables setuid programs, for the process and its descendants.
	NoNewPrivileges bool `json:"noNewPrivileges,omitempty"`
	// Seccomp denies the system calls that act on the whole robot. It implies NoNewPrivileges.
	Seccomp bool `json:"seccomp,omitempty"`
	// Rlimits limits core files and open files. It also permanently limits the calling process,
	// since these limits belong to processes, not to threads. Without it, the task may inherit the
	// limit of open files that Go has raised.
	Rlimits bool `json:"rlimits,omitempty"`
}

// SetupError reports that a process could not be confined. It does not unwrap, so that its cause
// is not mistaken for an error of the task's command.
type SetupError struct {
	Step string // what was tried
	Err  error
}

func (e *SetupError) Error() string { return fmt.Sprintf("isolation: %s: %v", e.Step, e.Err) }

// Start starts a process, confined from its first instruction, as the leader of its own session.
// It inherits no descriptor that Go has opened. The caller closes pidfd and waits for pid.
//
// The process is killed when the caller's process exits, unless it runs a setuid program, which
// the kernel exempts. Its descendants are only killed with a PID namespace, or by Cgroup.Kill.
//
// Errors of fork, chdir and exec are of type syscall.Errno; all others are a *SetupError.
func Start(c Command, f Confinement) (pid, pidfd int, err error) {
	type started struct {
		pid, pidfd int
		err        error
	}
	if c.Dir == "" && f.Mounts != nil {
		c.Dir = "/" // the current directory may be hidden from it
	}
	if c.CallerStays && !f.changesThread() {
		runtime.LockOSThread() // never unlocked: the kernel sends Pdeathsig when this thread exits
		return f.startConfined(c)
	}
	result := make(chan started, 1)
	runOnNewThread(func() {
		pid, pidfd, err := f.startConfined(c)
		// The kernel sends Pdeathsig when the thread that forked exits, not when the process does.
		// So the thread must stay until the task has ended.
		stay := watchUntilEnd(pidfd, err)
		result <- started{pid, pidfd, err}
		stay()
	})
	r := <-result
	return r.pid, r.pidfd, r.err
}

// watchUntilEnd returns a function that blocks until the process has exited. It duplicates the
// descriptor, since the caller may close its own at any time.
func watchUntilEnd(pidfd int, err error) func() {
	if err != nil {
		return func() {}
	}
	own, err := unix.FcntlInt(uintptr(pidfd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return func() { select {} } // better a leaked thread than a killed task
	}
	return func() {
		hasEnded(own, -1)
		_ = unix.Close(own)
	}
}

// hasEnded reports whether a process has exited. It waits for that for up to wait milliseconds;
// with -1 it waits forever.
func hasEnded(pidfd, wait int) bool {
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, wait)
		if !errors.Is(err, unix.EINTR) {
			return n == 1
		}
	}
}

// runOnNewThread runs f on a new OS thread that exits afterwards. It is not the main thread, which
// Go cannot end and which /proc shows as this process.
func runOnNewThread(f func()) {
	go func() {
		runtime.LockOSThread() // never unlocked, so that Go ends the thread
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
		<-begun // until then no other goroutine can run on the main thread
		runtime.UnlockOSThread()
	}()
}

// startConfined confines the calling thread and forks.
func (f Confinement) startConfined(c Command) (pid, pidfd int, err error) {
	files, err := f.openTaskFiles()
	if err != nil {
		return 0, -1, &SetupError{"cgroup", err}
	}
	defer files.closeAll()
	if err = f.confineThread(files); err == nil {
		pid, pidfd, err = f.findAndFork(c)
	}
	// This thread keeps running until the task has ended. In the cgroup it would be counted, the
	// cgroup would never be empty, and Kill would kill this process.
	if left := joinGroups(files.agent); left != nil && err == nil {
		killAndReap(pid, pidfd)
		return 0, -1, &SetupError{"leave the cgroup", left}
	}
	if err != nil {
		return 0, -1, err
	}
	return pid, pidfd, nil
}

// changesThread reports whether confineThread changes the calling thread for good.
func (f Confinement) changesThread() bool {
	return f.Enter != 0 || f.Hostname != "" || f.Mounts != nil || f.NoNewPrivileges || f.Seccomp
}

// findAndFork looks the program up in the task's view of the host and starts it.
func (f Confinement) findAndFork(c Command) (pid, pidfd int, err error) {
	if c.Find != nil {
		if c.Path, err = c.Find(); err != nil {
			return 0, -1, err
		}
	}
	if c.TimerSlack > 0 {
		_ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(c.TimerSlack), 0, 0, 0) // of this thread; inherited
	}
	return f.forkCommand(c)
}

func (f Confinement) openTaskFiles() (*taskFiles, error) {
	if v, ok := f.Cgroup.version().(v1); ok && len(v) > 0 {
		return v.openTaskFiles()
	}
	return &taskFiles{}, nil
}

// confineThread removes from the calling thread what its child must not have. The filter is last,
// since it denies what the other steps need.
func (f Confinement) confineThread(files *taskFiles) error {
	steps := []struct {
		name string
		on   bool
		do   func() error
	}{
		{"cgroup", true, func() error { return joinGroups(files.task) }},
		{"enter", f.Enter != 0, f.enterNamespaces},
		{"host name", f.Hostname != "", f.setHostname},
		{"mounts", f.Mounts != nil, f.Mounts.applyMounts},
		{"resource limits", f.Rlimits, limitResources},
		{"no new privileges", f.NoNewPrivileges || f.Seccomp, noNewPrivileges},
		{"system call filter", f.Seccomp && !f.usesVersion2(), filterCalls},
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

func (f Confinement) usesVersion2() bool { return f.Cgroup != nil && f.Cgroup.V2 != "" }

// forkCommand starts the process from the calling thread.
func (f Confinement) forkCommand(c Command) (pid, pidfd int, err error) {
	if f.Seccomp && f.usesVersion2() {
		return f.forkFiltered(c)
	}
	pidfd = -1
	sys := &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL, PidFD: &pidfd, Credential: f.newCredential(), Setctty: c.Terminal}
	if f.Enter != 0 {
		// In another PID namespace getppid returns 0, and Go would conclude that the parent has
		// exited.
		sys.Pdeathsig = 0
	}
	if f.usesVersion2() {
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
		killAndReap(pid, pidfd)
		err = &SetupError{"start", errors.New("the kernel does not support pidfds: Linux 5.4 or newer is required")}
	}
	if err != nil {
		return 0, -1, err
	}
	return pid, pidfd, nil
}

func (f Confinement) newCredential() *syscall.Credential {
	if f.User == nil {
		return nil
	}
	return &syscall.Credential{Uid: f.User.UID, Gid: f.User.GID, Groups: f.User.Groups}
}

// killAndReap kills a process that is not returned to the caller.
func killAndReap(pid, pidfd int) {
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
