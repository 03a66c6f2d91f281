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
)

// The files in Spec.Dir.
const (
	stateFile   = "state"
	lockFile    = "lock"
	controlFile = "control"
	eventsFile  = "events"
	logFile     = "shim.log"
)

// State is what a shim has said of its attempt. It says more, never otherwise.
type State struct {
	// Shim is the process of the shim. Nil: it has not come that far.
	Shim *Process `json:"shim,omitempty"`
	// Begun: from here on the task may have run.
	Begun bool `json:"begun,omitempty"`
	// Started is set once the task runs.
	Started *Started `json:"started,omitempty"`
	// Exit is set once all of the task has ended.
	Exit *Exit `json:"exit,omitempty"`
}

// Process tells a process from a later one of the same number.
type Process struct {
	PID int `json:"pid"`
	// StartTicks is its start in clock ticks since boot.
	StartTicks uint64 `json:"startTicks"`
}

// Started tells of the task's first process.
type Started struct {
	Process
	At time.Time `json:"at"`
}

// Exit tells how an attempt ended.
type Exit struct {
	// Code is the exit code, 128 plus the number of the signal that ended the
	// process, or -1 when there was none.
	Code int `json:"code"`
	// Signal is the number of the signal that ended the process, else 0.
	Signal int `json:"signal,omitempty"`
	// Cause is why the shim ended it. Empty: it ended by itself.
	Cause string `json:"cause,omitempty"`
	// Killed tells that SIGTERM did not suffice.
	Killed bool `json:"killed,omitempty"`
	// Error is why the task could not be started, as a sentence for its owner.
	Error string `json:"error,omitempty"`
	// NoCommand tells that there is no such command on this host.
	NoCommand bool      `json:"noCommand,omitempty"`
	At        time.Time `json:"at"`
	// CPU is the time that the task's processes have used.
	CPU time.Duration `json:"cpu,omitempty"`
	// MemoryPeak is the most memory that they had, in bytes.
	MemoryPeak int64 `json:"memoryPeak,omitempty"`
	// Outputs are the values that the task hands on.
	Outputs map[string]string `json:"outputs,omitempty"`
}

// stateRoom is reserved on the disk before the task starts, so that a full disk
// does not swallow how it ended.
const stateRoom = 64 << 10

// journal writes the state, one line for each thing that is new.
type journal struct {
	file *os.File
	bell int
}

func openJournal(dir string) (*journal, error) {
	file, err := os.OpenFile(filepath.Join(dir, stateFile), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	// Not every file system can; there the disk had better not be full.
	err = unix.Fallocate(int(file.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, stateRoom)
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return nil, fmt.Errorf("reserve room for the task's exit code: %w", err)
	}
	bell, err := openFIFO(filepath.Join(dir, eventsFile))
	if err != nil {
		return nil, err
	}
	return &journal{file: file, bell: bell}, nil
}

// say adds to the state, and rings the agent, if there is one.
func (j *journal) say(s State) error {
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if _, err := j.file.Write(append(b, '\n')); err != nil {
		return err
	}
	_, _ = unix.Write(j.bell, []byte{'\n'}) // a full pipe rings as well
	return nil
}

// ReadState reads what the shim in dir has said. It is empty when there is none.
//
// A damaged line, as a power cut leaves it, is passed over: an agent that fails on
// it would never start again. What it said may be that the task begins.
func ReadState(dir string) (State, error) {
	var s State
	b, err := os.ReadFile(filepath.Join(dir, stateFile))
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	for line := range bytes.Lines(b) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // it is being written
		}
		if json.Unmarshal(line, &s) != nil {
			s.Begun = true
		}
	}
	return s, nil
}

// openFIFO opens a pipe for both directions, so that it has neither an end of
// file nor a reader that is missing, whoever of its users dies.
func openFIFO(path string) (int, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", path, err)
	}
	return fd, nil
}
