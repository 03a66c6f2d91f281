package shim

import (
	"encoding/json"
	"errors"
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
	Program string `json:"-"`
	// Dir is the directory of the shim's files, which remain after it exits. The task cannot write
	// there.
	Dir string `json:"dir"`
	// LogDir is the directory for the task's output.
	LogDir string `json:"logDir"`
	// LogBytes bounds the output that is kept. If zero, it is 10 MiB.
	LogBytes int64 `json:"logBytes"`

	Driver string          `json:"driver"`
	Config wire.TaskConfig `json:"config"`
	// WorkDir is the task's own directory: its HOME and the directory that it starts in.
	WorkDir string `json:"workDir"`
	// Env is the complete environment of the task.
	Env map[string]string `json:"env"`
	// SetUp is what to put into WorkDir before the task starts. If nil, nothing.
	SetUp *SetUp `json:"setUp,omitempty"`
	// OutputsFile is the file that the task writes its outputs to, and Outputs are the names that
	// are accepted. If Outputs is empty, the file is not read.
	OutputsFile string   `json:"outputsFile,omitempty"`
	Outputs     []string `json:"outputs,omitempty"`

	// Namespaces gives the shim, and with it the task, a PID and an IPC namespace.
	Namespaces bool `json:"namespaces,omitempty"`
	// Confinement isolates the task, or the set-up of a task that a container engine isolates.
	Confinement isolation.Confinement `json:"confinement"`
	// Contained is for drivers whose tasks a container engine isolates. Engine is the engine's
	// unix socket.
	Contained driver.Contained `json:"contained"`
	Engine    string           `json:"engine,omitempty"`

	// Timeout bounds the attempt, counted from the start of the process. If zero, it is unbounded.
	Timeout time.Duration `json:"timeout"`
	// KillTimeout is the time between SIGTERM and SIGKILL when the shim itself stops the task. If
	// zero, SIGKILL follows at once.
	KillTimeout time.Duration `json:"killTimeout"`

	// ShutdownWait is how long after an end by SIGTERM the shim waits for SIGTERM itself, before it
	// takes the end for a fault of the task. If zero, it is 2 s.
	ShutdownWait time.Duration `json:"shutdownWait,omitempty"`

	// SelfStopAfter is how long the task may run after the last acknowledged heartbeat. If zero,
	// it is never stopped for this reason.
	SelfStopAfter time.Duration `json:"selfStopAfter"`
	// LastSeenDir is the directory of the LastSeenFile. It is read if SelfStopAfter is set.
	LastSeenDir string `json:"lastSeenDir"`
}

// Kind is the part of a Spec that must be known when a warm shim is started.
type Kind struct {
	Program    string // Spec.Program
	Namespaces bool   // Spec.Namespaces
}

// Kind returns the kind of shim that the attempt needs.
func (s Spec) Kind() Kind { return Kind{s.Program, s.Namespaces} }

// writeMemfd returns an anonymous memory file with the message as JSON.
func writeMemfd(message any) (*os.File, error) {
	b, err := json.Marshal(message)
	if err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate("k8s4r", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memfd: %w", err)
	}
	f := os.NewFile(uintptr(fd), "memory")
	if _, err := f.WriteAt(b, 0); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// readMemfd reads a message of writeMemfd from an inherited descriptor.
func readMemfd[T any](fd uintptr) (message T, err error) {
	f := os.NewFile(fd, "memory")
	err = json.NewDecoder(io.NewSectionReader(f, 0, 1<<30)).Decode(&message)
	return message, errors.Join(err, f.Close())
}
