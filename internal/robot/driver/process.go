package driver

import (
	"errors"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"k8s4r.io/k8s4r/internal/isolation"
	"k8s4r.io/k8s4r/internal/proc"
)

// Process is a task that is a process of this machine, the leader of a session
// and of a process group. Its parent is this process, which must be a subreaper,
// or the first process of a PID namespace: what the task orphans comes here.
type Process struct {
	pid    int
	pidfd  int
	cgroup *isolation.Cgroup
}

// Fork starts a program, which ends with this process.
func Fork(path string, argv, env []string, t Task) (*Process, error) {
	return forkFound(func() (string, error) { return path, nil }, argv, env, t)
}

// forkFound is Fork of a program that is looked for where the task will be.
func forkFound(find func() (string, error), argv, env []string, t Task) (*Process, error) {
	stdin := t.Stdin
	if stdin == nil {
		null, err := os.Open(os.DevNull)
		if err != nil {
			return nil, err
		}
		defer null.Close()
		stdin = null
	}
	pid, pidfd, err := isolation.Start(isolation.Command{
		Find: find, Args: argv, Env: env, Dir: t.Dir, Files: append([]*os.File{stdin, t.Stdout, t.Stderr}, t.Files...),
		Terminal: t.Terminal,
	}, t.Confinement)
	if err != nil {
		return nil, err
	}
	return &Process{pid: pid, pidfd: pidfd, cgroup: t.Confinement.Cgroup}, nil
}

// PID is the leader's.
func (p *Process) PID() int { return p.pid }

// Done is the leader's pidfd.
func (p *Process) Done() int { return p.pidfd }

// Signal reaches every process of the group. The leader is not reaped before End:
// until then nobody else can have its number.
func (p *Process) Signal(s syscall.Signal) { _ = syscall.Kill(-p.pid, s) }

// killWait bounds the wait for processes of a control group that were sent SIGKILL.
const killWait = 5 * time.Second

// Kill reaches the group, and what has left it.
func (p *Process) Kill() {
	p.Signal(syscall.SIGKILL)
	p.killRest()
}

// killRest kills all that the task has started.
func (p *Process) killRest() {
	_ = p.cgroup.Kill(killWait) // an error: some do not end, and End waits for them
	if os.Getpid() == 1 {
		_ = syscall.Kill(-1, syscall.SIGKILL) // all of the namespace but us
		return
	}
	for _, pid := range proc.Descendants(os.Getpid()) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// End reaps the leader and all that it has left behind, which comes to us as its
// parents end.
func (p *Process) End() End {
	p.Signal(syscall.SIGKILL) // while the leader holds the number
	end := p.Reap()
	// What has lost its parent is a child of ours: without one, nothing is left, and
	// no look at all processes of the robot is needed.
	for hasChild() {
		p.killRest()
		bury()
	}
	p.used(&end)
	return end
}

// hasChild tells whether this process has children, ended ones among them.
func hasChild() bool {
	err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return !errors.Is(err, unix.ECHILD)
}

// bury reaps children that have ended, one at the least. To look for more of them
// after each would take a fork bomb's thousands a minute to go.
func bury() {
	for options := 0; ; options = syscall.WNOHANG {
		pid, err := syscall.Wait4(-1, nil, options, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || pid == 0 {
			return
		}
	}
}

// used is what the task has cost, by its control group if it has one.
func (p *Process) used(end *End) {
	kills, _ := p.cgroup.OOMKills()
	use, _ := p.cgroup.Usage() // an error: it has none
	var children unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_CHILDREN, &children)
	if use.CPU == 0 {
		use.CPU = time.Duration(children.Utime.Nano() + children.Stime.Nano())
	}
	if use.MemoryPeak == 0 {
		use.MemoryPeak = children.Maxrss << 10
	}
	end.OOM, end.CPU, end.MemoryPeak = kills > 0, use.CPU, use.MemoryPeak
}

// Reap is End for a process beside the task: it ends nothing else.
func (p *Process) Reap() End {
	var status syscall.WaitStatus
	for {
		_, err := syscall.Wait4(p.pid, &status, 0, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		_ = unix.Close(p.pidfd)
		p.pidfd = -1
		return endOf(status)
	}
}

func endOf(status syscall.WaitStatus) End {
	if status.Signaled() {
		return End{Code: 128 + int(status.Signal()), Signal: int(status.Signal())}
	}
	return End{Code: status.ExitStatus()}
}
