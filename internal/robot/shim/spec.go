package shim

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"k8s4r.io/k8s4r/internal/driver"
	"k8s4r.io/k8s4r/internal/isolation"
	"k8s4r.io/k8s4r/internal/wire"
)

// Spec is all that a shim needs to know of its attempt. It reaches the shim in
// memory and never lies on a disk: the environment may hold secrets.
type Spec struct {
	// Program is the file of the shim: an agent's. Empty: that of this process.
	Program string `json:"-"`
	// Dir is where the shim keeps what outlives it. The task cannot write there.
	Dir string `json:"dir"`
	// LogDir takes the task's output.
	LogDir string `json:"logDir"`
	// LogBytes bounds what is kept of it. Zero: 10 MiB.
	LogBytes int64 `json:"logBytes"`

	Driver string          `json:"driver"`
	Config wire.TaskConfig `json:"config"`
	// WorkDir is the task's own directory, its HOME and where it starts.
	WorkDir string `json:"workDir"`
	// Env is the whole environment of the task.
	Env map[string]string `json:"env"`
	// SetUp is what is put into WorkDir before the task starts. Nil: nothing.
	SetUp *SetUp `json:"setUp,omitempty"`
	// OutputsFile is where the task writes its outputs, and Outputs are the names
	// that it may hand on. None: it hands on nothing.
	OutputsFile string   `json:"outputsFile,omitempty"`
	Outputs     []string `json:"outputs,omitempty"`

	// Namespaces gives the shim, and with it the task, a PID and an IPC namespace.
	Namespaces bool `json:"namespaces,omitempty"`
	// Confinement bounds the task, and of one that an engine confines what sets it up.
	Confinement isolation.Confinement `json:"confinement"`
	// Contained is for a driver that has an engine confine the task, and Engine the
	// unix socket where that listens.
	Contained driver.Contained `json:"contained"`
	Engine    string           `json:"engine,omitempty"`

	// Timeout bounds the attempt from the start of the process. Zero: no bound.
	Timeout time.Duration `json:"timeout"`
	// KillTimeout is the time between SIGTERM and SIGKILL, where who stops the
	// task names none. Zero: SIGKILL follows at once.
	KillTimeout time.Duration `json:"killTimeout"`

	// StopAfter is how long the task may run after the last contact. Zero: for
	// ever.
	StopAfter time.Duration `json:"stopAfter"`
	// ContactDir is where the file is that says when that was.
	ContactDir string `json:"contactDir"`
}

// Kind is what a shim has to be like for an attempt.
type Kind struct {
	Program    string // Spec.Program
	Namespaces bool   // Spec.Namespaces
}

// Kind is that of the attempt's shim.
func (s Spec) Kind() Kind { return Kind{s.Program, s.Namespaces} }

// inMemory writes a message to a file that has no name and lies on no disk.
func inMemory(message any) (*os.File, error) {
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

// fromMemory reads what inMemory has written to a descriptor that was inherited.
func fromMemory[T any](fd uintptr) (message T, err error) {
	f := os.NewFile(fd, "memory")
	err = json.NewDecoder(io.NewSectionReader(f, 0, 1<<30)).Decode(&message)
	return message, errors.Join(err, f.Close())
}
