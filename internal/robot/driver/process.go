package driver

import (
	"errors"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"k8s4r.io/k8s4r/internal/robot/isolation"
	"k8s4r.io/k8s4r/internal/robot/proc"
)

// Process is a task that is a process of this robot, the leader of a session and of a process
// group. Its parent is this process. This process must be a subreaper or PID 1 of a PID namespace,
// so that it becomes the parent of the task's orphans.
type Process struct {
	pid    int
	pidfd  int
	cgroup *isolation.Cgroup
	index  *RangeIndex
	// pidLimit is the limit of processes of the cgroup of a RangeIndex, once Kill has lowered it.
	pidLimit string
}

// StartProcess starts a program that is killed when this process exits.
func StartProcess(path string, argv, env []string, t Task) (*Process, error) {
	return startExecutable(func() (string, error) { return path, nil }, argv, env, t, false)
}

// startExecutable starts a program whose path is looked up where the task will run. callerStays is
// isolation.Command.CallerStays.
func startExecutable(find func() (string, error), argv, env []string, t Task, callerStays bool) (*Process, error) {
	stdin := t.Stdin
	if stdin == nil {
		null, err := proc.Open(os.DevNull, unix.O_RDONLY, 0)
		if err != nil {
			return nil, err
		}
		stdin = os.NewFile(uintptr(null), os.DevNull)
		defer stdin.Close()
	}
	pid, pidfd, err := isolation.Start(isolation.Command{
		Find: find, Args: argv, Env: env, Dir: t.Dir, Files: append([]*os.File{stdin, t.Stdout, t.Stderr}, t.Files...),
		Terminal: t.Terminal, CallerStays: callerStays, TimerSlack: t.TimerSlack,
	}, t.Confinement)
	if err != nil {
		return nil, err
	}
	return &Process{pid: pid, pidfd: pidfd, cgroup: t.Confinement.Cgroup, index: t.Index}, nil
}

// PID returns the leader's process.
func (p *Process) PID() int { return p.pid }

// Done returns the leader's pidfd.
func (p *Process) Done() int { return p.pidfd }

// Signal sends a signal to every process of the group. The leader is not reaped before End, so its
// PID cannot be reused until then.
func (p *Process) Signal(s syscall.Signal) { _ = syscall.Kill(-p.pid, s) }

// killWait bounds the wait for the processes of a cgroup after SIGKILL.
const killWait = 5 * time.Second

// Kill kills the group and the processes that have left it.
func (p *Process) Kill() {
	p.Signal(syscall.SIGKILL)
	p.killRest()
}

// killRest kills all processes that the task has started.
func (p *Process) killRest() {
	if p.index != nil && p.pidLimit == "" {
		p.pidLimit = p.cgroup.PIDLimit()
	}
	_ = p.cgroup.Kill(killWait) // on an error some are still running, and End waits for them
	if os.Getpid() == 1 {
		_ = syscall.Kill(-1, syscall.SIGKILL) // all of the PID namespace except this process
		return
	}
	for _, pid := range proc.ListDescendants(os.Getpid()) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// End reaps the leader and kills and reaps its descendants, which become children of this process
// as their parents exit.
func (p *Process) End() End {
	p.Signal(syscall.SIGKILL) // before the leader is reaped, while its PID cannot be reused
	end := p.Reap()
	// Orphans are children of this process. Without children nothing is left, and there is no need
	// to look at all processes of the robot.
	for hasChild() {
		p.killRest()
		reapChildren()
	}
	if p.pidLimit != "" {
		_ = p.cgroup.SetPIDLimit(p.pidLimit) // on an error the next index cannot be started
	}
	p.detectOOM(&end)
	if p.index == nil {
		end.CPU, end.MemoryPeak = MeasureUse(p.cgroup)
	}
	return end
}

// hasChild reports whether this process has children, including zombies.
func hasChild() bool {
	err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return !errors.Is(err, unix.ECHILD)
}

// reapChildren blocks until a child has exited and reaps all that have. Calling killRest after
// each of them would take minutes for the thousands of a fork bomb.
func reapChildren() {
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

// detectOOM finds out whether the kernel killed a process of the task for lack of memory. After an end
// without failure that matters only to the index that follows: each file takes a short task 20 µs.
func (p *Process) detectOOM(end *End) {
	var before int64
	switch {
	case p.index != nil:
		before = p.index.OOMKills
	case end.Code == 0:
		return
	}
	end.OOMKills, _ = p.cgroup.OOMKills()
	end.OOM = end.Code != 0 && end.OOMKills > before
}

// MeasureUse returns what the children of this process have used that have exited: as measured by
// their cgroup, if they have one.
func MeasureUse(cgroup *isolation.Cgroup) (cpu time.Duration, memoryPeak int64) {
	use := cgroup.Total()
	var children unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_CHILDREN, &children)
	if use.CPU == 0 {
		use.CPU = time.Duration(children.Utime.Nano() + children.Stime.Nano())
	}
	if use.MemoryPeak == 0 {
		use.MemoryPeak = int64(children.Maxrss) << 10 //nolint:unconvert // it has 32 bits on ARM
	}
	return use.CPU, use.MemoryPeak
}

// Reap is End for a process besides the task: it kills no other process.
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
