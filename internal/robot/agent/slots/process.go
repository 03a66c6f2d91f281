package slots

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// markVariable marks a program that a launcher has started. Its value is that of Mark.encode.
const markVariable = "K8S4R_AGENT_LAUNCHED"

// Mark is what a launcher passes to the program of a slot. The zero value is that of a program that was not
// started by a launcher.
type Mark struct {
	// Launcher is the path of the installed program. If empty, no launcher has started this program.
	Launcher string
	// Slot of this program.
	Slot Slot
	// OnTrial is set if this program is the child of its launcher and must pass its self-test.
	OnTrial bool
}

// encode returns the value of the variable. The number of the launcher's process lets a program ignore a
// variable that it has inherited from elsewhere.
func (m Mark) encode(pid int) string {
	phase := Settled
	if m.OnTrial {
		phase = Trying
	}
	return fmt.Sprintf("%d %s %s %s", pid, string(m.Slot), phase, m.Launcher)
}

// TakeMark returns the mark of this process and removes it from the environment, so that its children have
// none.
func TakeMark() Mark {
	value := os.Getenv(markVariable)
	_ = os.Unsetenv(markVariable)
	return decodeMark(value, os.Getpid(), os.Getppid())
}

func decodeMark(value string, self, parent int) Mark {
	fields := strings.SplitN(value, " ", 4)
	if len(fields) < 4 {
		return Mark{}
	}
	m := Mark{Launcher: fields[3], Slot: Slot(fields[1]), OnTrial: Phase(fields[2]) == Trying}
	launcher := self // it was replaced by this program
	if m.OnTrial {
		launcher = parent
	}
	if pid, err := strconv.Atoi(fields[0]); err != nil || pid != launcher {
		return Mark{}
	}
	return m
}

// Process is the process of a launcher.
type Process struct {
	// Program is the path of the installed program, and Args are the arguments of each program.
	Program string
	Args    []string
	// ParentFD is a pipe of the parent that programs inherit. If negative, there is none.
	ParentFD int
}

func (p Process) arguments() []string { return append([]string{ProgramName}, p.Args...) }

func environment(m Mark) []string {
	return append(os.Environ(), markVariable+"="+m.encode(os.Getpid()))
}

// Execute replaces this process by the program of a slot. It returns only an error.
func (p Process) Execute(slot Slot, program string) error {
	return p.replace(program, environment(Mark{Launcher: p.Program, Slot: slot}))
}

// ExecuteLauncher replaces this process by the installed program, which decides what runs next. It returns
// only an error.
func (p Process) ExecuteLauncher() error { return p.replace(p.Program, os.Environ()) }

func (p Process) replace(program string, env []string) error {
	if p.ParentFD >= 0 {
		if _, err := unix.FcntlInt(uintptr(p.ParentFD), unix.F_SETFD, 0); err != nil {
			return os.NewSyscallError("fcntl", err)
		}
	}
	return &os.PathError{Op: "exec", Path: program, Err: syscall.Exec(program, p.arguments(), env)}
}

// trialKillWait is how long a program on trial may take to stop.
const trialKillWait = 10 * time.Second

// Try runs the program of a slot as a child, on trial, and returns when it has ended. Signals to this process
// are passed on. If the child runs longer than remaining, it is killed.
func (p Process) Try(slot Slot, program string, remaining time.Duration) TrialEnd {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, unix.SIGTERM, unix.SIGINT)
	defer signal.Stop(signals)
	// The kernel signals the child when the thread that has started it ends, not when the process does.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	pid, err := syscall.ForkExec(program, p.arguments(), &syscall.ProcAttr{
		Env: environment(Mark{Launcher: p.Program, Slot: slot, OnTrial: true}), Files: p.files(),
		// A group of its own: the signals of a terminal reach it once, from this process.
		Sys: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM},
	})
	if err != nil {
		return TrialEnd{Problem: "it cannot be started: " + err.Error(), IsTimeout: true}
	}
	end := superviseTrial(pid, signals, remaining)
	end.IsStopped = end.IsStopped || p.isParentGone()
	return end
}

// isParentGone reports whether the parent has closed its pipe, which stops all programs.
func (p Process) isParentGone() bool {
	if p.ParentFD < 0 {
		return false
	}
	fds := []unix.PollFd{{Fd: int32(p.ParentFD), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0 && fds[0].Revents&(unix.POLLHUP|unix.POLLERR) != 0
}

// files returns the descriptors that a child inherits, under the same numbers.
func (p Process) files() []uintptr {
	files := []uintptr{0, 1, 2}
	for len(files) <= p.ParentFD {
		files = append(files, ^uintptr(0))
	}
	if p.ParentFD >= 0 {
		files[p.ParentFD] = uintptr(p.ParentFD)
	}
	return files
}

func superviseTrial(pid int, signals <-chan os.Signal, remaining time.Duration) (end TrialEnd) {
	ended := make(chan syscall.WaitStatus, 1)
	go func() { ended <- reapUntil(pid) }()
	timeout := time.After(remaining)
	for {
		select {
		case s := <-signals:
			end.IsStopped = true
			_ = syscall.Kill(pid, s.(syscall.Signal))
			timeout = time.After(time.Hour) // the supervisor of this process has a limit of its own
		case <-timeout:
			end.IsTimeout = true
			_ = syscall.Kill(pid, syscall.SIGTERM)
			timeout = nil
			kill := time.AfterFunc(trialKillWait, func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
			defer kill.Stop()
		case status := <-ended:
			return describeEnd(end, status)
		}
	}
}

// reapUntil reaps children until one with this number has ended: shims that the process before has started are
// children of this process, too.
func reapUntil(pid int) (status syscall.WaitStatus) {
	for {
		reaped, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil || reaped == pid:
			return status
		}
	}
}

func describeEnd(end TrialEnd, status syscall.WaitStatus) TrialEnd {
	switch {
	case end.IsTimeout:
		end.Problem = fmt.Sprintf("it did not end its self-test within %v and was stopped", trialTimeout)
	case status.Signaled():
		end.Problem = "it was ended by " + status.Signal().String()
		end.Status = 128 + int(status.Signal())
	default:
		end.Problem = fmt.Sprintf("it ended with exit status %d", status.ExitStatus())
		end.Status = status.ExitStatus()
	}
	return end
}
