package shim

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/driver"
	"k8s4r.io/k8s4r/internal/robot/isolation"
)

// Spec is an attempt, as its shim receives it. It is passed in memory and never written to a disk,
// since the environment may hold secrets.
type Spec struct {
	// Program is the file of the shim's program. If empty, it is that of this process, which must be
	// the agent.
	Program string
	// Dir is the directory of the shim's files, which remain after it exits. The task cannot write
	// there.
	Dir string
	// LogDir is the directory for the task's output.
	LogDir string
	// LogBytes bounds the output that is kept. If zero, it is 10 MiB.
	LogBytes int64
	// LogLine is a line of the agent before the output, in the log of the runs before. If empty, there
	// is no log yet.
	LogLine string
	// LogGap is how many bytes of the log are left out before LogLine. After a power cut the server may
	// have more of the log than the robot, and takes nothing again that begins before its end.
	LogGap int64

	Driver string
	Config wire.TaskConfig
	// Range has the indexes for which the task runs. If nil, it runs once.
	Range *Range
	// WorkDir is the task's own directory: its HOME and the directory that it starts in.
	WorkDir string
	// Env is the complete environment of the task.
	Env map[string]string
	// SetUp is what to put into WorkDir before the task starts. If nil, nothing.
	SetUp *SetUp
	// OutputsFile is the file that the task writes its outputs to, and Outputs are the names that
	// are accepted. If Outputs is empty, the file is not read.
	OutputsFile string
	Outputs     []string

	// Namespaces gives the shim, and with it the task, a PID and an IPC namespace.
	Namespaces bool
	// Confinement isolates the task, or the set-up of a task that a container engine isolates.
	Confinement isolation.Confinement
	// Contained is for drivers whose tasks a container engine isolates. Engine is the engine's
	// unix socket.
	Contained driver.Contained
	Engine    string

	// Timeout bounds the attempt, counted from the start of the process. With Range it bounds each
	// index. If zero, there is no bound.
	Timeout time.Duration
	// KillTimeout is the time between SIGTERM and SIGKILL when the shim itself stops the task. If
	// zero, SIGKILL follows at once.
	KillTimeout time.Duration

	// TimerSlack is by how many nanoseconds the timers of the task may be late. Spawn sets it to the
	// agent's own, since those of the shim may be later.
	TimerSlack int

	// ShutdownWait is how long after an end by SIGTERM the shim waits for SIGTERM itself, before it
	// takes the end for a fault of the task. If zero, it is 2 s.
	ShutdownWait time.Duration

	// SelfStopAfter is how long the task may run after the last acknowledged heartbeat. If zero,
	// it is never stopped for this reason.
	SelfStopAfter time.Duration
	// LastSeenDir is the directory of the LastSeenFile. It is read if SelfStopAfter is set.
	LastSeenDir string
}

// Kind is the part of a Spec that must be known when a warm shim is started.
type Kind struct {
	Program    string // Spec.Program
	Namespaces bool   // Spec.Namespaces
}

// Kind returns the kind of shim that the attempt needs.
func (s Spec) Kind() Kind { return Kind{s.Program, s.Namespaces} }

// writeMemfd returns an anonymous memory file with a message.
func writeMemfd(message []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("k8s4r", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memfd: %w", err)
	}
	f := os.NewFile(uintptr(fd), "memory")
	if _, err := f.WriteAt(message, 0); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// readMemfd returns the message in an inherited or received memory file, and closes that.
func readMemfd(fd int) (message []byte, err error) {
	defer func() { _ = unix.Close(fd) }()
	size, err := unix.Seek(fd, 0, io.SeekEnd)
	if err != nil {
		return nil, os.NewSyscallError("lseek", err)
	}
	message = make([]byte, size)
	n, err := unix.Pread(fd, message, 0)
	if err == nil && n < len(message) {
		err = io.ErrUnexpectedEOF
	}
	return message, os.NewSyscallError("pread", err)
}
