package shim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"k8s4r.io/k8s4r/internal/robot/proc"
)

// The files in Spec.Dir. The lock also has what the shim itself prints, since each file costs a start as
// much as a tenth of its process.
const (
	stateFileName   = "state"
	lockFileName    = "lock"
	controlPipeName = "control"
	eventPipeName   = "events"
)

// State is what a shim has recorded about its attempt. Fields are added over time and never
// change.
type State struct {
	// Shim is the process of the shim. If nil, it has not started yet.
	Shim *Process `json:"shim,omitempty"`
	// MayHaveStarted is written right before the task is started. From then on the task may have
	// run.
	MayHaveStarted bool `json:"mayHaveStarted,omitempty"`
	// Started is set once the task runs.
	Started *Started `json:"started,omitempty"`
	// Exit is set once all processes of the task have exited.
	Exit *Exit `json:"exit,omitempty"`
	// Indexes has what has become of the indexes of a range. They have lines of their own.
	Indexes Indexes `json:"-"`
}

// Process identifies a process, also if its PID is reused later.
type Process struct {
	PID int `json:"pid"`
	// StartTicks is the start time in clock ticks since boot.
	StartTicks uint64 `json:"startTicks"`
}

// Started is the task's first process and when it was started.
type Started struct {
	Process
	At time.Time `json:"at"`
}

// Exit describes how an attempt ended.
type Exit struct {
	// Code is the exit code, 128 plus the number of the signal that ended the process, or -1 if
	// there was no process. For a range it is 0 once each index has an end, whichever.
	Code int `json:"code"`
	// Signal is the number of the signal that ended the process, or 0.
	Signal int `json:"signal,omitempty"`
	// StopReason is why the shim stopped the task. If empty, the task ended by itself.
	StopReason string `json:"stopReason,omitempty"`
	// Killed reports whether SIGKILL was needed after SIGTERM.
	Killed bool `json:"killed,omitempty"`
	// Error is why the task could not be started, for the user to read.
	Error string `json:"error,omitempty"`
	// CommandNotFound reports whether the command does not exist on this robot.
	CommandNotFound bool      `json:"commandNotFound,omitempty"`
	At              time.Time `json:"at"`
	// CPU is the CPU time that the task's processes used.
	CPU time.Duration `json:"cpu,omitempty"`
	// MemoryPeak is the most memory that they used, in bytes.
	MemoryPeak int64 `json:"memoryPeak,omitempty"`
	// Outputs are the task's outputs by name.
	Outputs map[string]string `json:"outputs,omitempty"`
}

// StateFormat is the version of the state file that this version writes, and the only one that it reads.
const StateFormat = 2

// stateLine is one line of the state file.
type stateLine struct {
	Version int `json:"v"`
	State
}

// ErrOldFormat rejects a state file that another version of the agent has written.
var ErrOldFormat = errors.New("written by an earlier version of the program, in a format that this version cannot read; " +
	"stop the task with the earlier version, then delete the directory of the file")

// ErrNewFormat rejects a state file that a later version of the agent has written.
var ErrNewFormat = errors.New("written by a later version of the program, in a format that this version cannot read; " +
	"start the later version again")

// reservedStateBytes are reserved on the disk before the task starts, so that the exit code can be
// written even if the disk is full by then.
const reservedStateBytes = 64 << 10

// stateWriter appends to the state file: one line for each change.
type stateWriter struct {
	file      int
	eventPipe int
	held      []byte // lines that are not written yet: the end of an index waits for the next line, which follows at once
}

// openStateWriter opens the state file of an attempt with a number of indexes.
func openStateWriter(dir string, indexes int) (*stateWriter, error) {
	file, err := proc.Open(filepath.Join(dir, stateFileName), unix.O_WRONLY|unix.O_CREAT|unix.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	// Not all file systems support this. On those, a full disk loses the exit code.
	err = unix.Fallocate(file, unix.FALLOC_FL_KEEP_SIZE, 0, int64(reservedStateBytes+indexes*maxIndexBytes))
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return nil, fmt.Errorf("reserve disk space for the task's exit code: %w", err)
	}
	eventPipe, err := openFIFO(filepath.Join(dir, eventPipeName))
	if err != nil {
		return nil, err
	}
	return &stateWriter{file: file, eventPipe: eventPipe}, nil
}

// appendState appends a line to the state file.
func (w *stateWriter) appendState(s State) error {
	w.held = appendLine(w.held, s)
	return w.writeLines()
}

// appendIndexStart records that an index is about to be started.
func (w *stateWriter) appendIndexStart(index int32) error {
	w.held = appendIndexStart(w.held, index)
	return w.writeLines()
}

// holdIndexEnd records how an index ended, with the next line.
func (w *stateWriter) holdIndexEnd(e IndexEnd) { w.held = appendIndexEnd(w.held, e) }

// writeLines appends the lines that are held to the state file.
func (w *stateWriter) writeLines() error {
	for b := w.held; len(b) > 0; {
		n, err := unix.Write(w.file, b)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("write", err)
		}
		b = b[max(n, 0):]
	}
	w.held = w.held[:0]
	return nil
}

// syncFile writes the state file to the disk. Without it the state may be lost with a power cut, which does
// no harm.
func (w *stateWriter) syncFile() { _ = unix.Fdatasync(w.file) }

// notifyAgent makes the event pipe readable. The agent acts on the start of the task, and on the exit of
// this process; it would read other changes for nothing.
func (w *stateWriter) notifyAgent() {
	_, _ = unix.Write(w.eventPipe, []byte{'\n'}) // if the pipe is full, it is readable already
}

// ReadState returns what the shim in dir has recorded. It is empty if there is no state file.
//
// A damaged line, as a power failure leaves it, is skipped, since an agent that fails on it could
// never start again. MayHaveStarted is set then, because the line may have contained it.
func ReadState(dir string) (State, error) {
	path := filepath.Join(dir, stateFileName)
	b, err := proc.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return State{}, nil
	}
	if err != nil {
		return State{}, err
	}
	var s stateLine
	for line := range bytes.Lines(b) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // the shim is still writing this line
		}
		if s.Indexes.parseLine(line) {
			continue
		}
		s.Version = 0
		switch err := json.Unmarshal(line, &s); {
		case err != nil:
			s.MayHaveStarted = true
		case s.Version > StateFormat:
			return State{}, fmt.Errorf("%s: %w", path, ErrNewFormat)
		case s.Version != StateFormat:
			return State{}, fmt.Errorf("%s: %w", path, ErrOldFormat)
		}
	}
	return s.State, nil
}

// openFIFO opens a FIFO for reading and writing, so that it never reports end of file and never
// lacks a reader, whichever process exits.
func openFIFO(path string) (int, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", path, err)
	}
	return fd, nil
}
