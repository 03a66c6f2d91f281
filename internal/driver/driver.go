// Package driver starts the processes of tasks and watches over them.
//
// A Driver knows how to start tasks of one kind. What it starts is a Process:
// the leader of a process group of its own. The Supervisor watches any number
// of them from a single goroutine, enforces their deadlines and reports how
// each ended.
//
// The drivers exec and raw_exec do the same today: a new process group, an own
// work directory, a clean environment. Neither isolates a task from the robot
// or from other tasks; it has the rights of the agent.
package driver

import (
	"errors"
	"maps"
	"slices"
	"time"

	"k8s4r.io/k8s4r/internal/wire"
)

// Driver starts tasks of one kind.
type Driver interface {
	// Check refuses a config that is not whole for this driver, with a
	// sentence that names the field.
	Check(config wire.TaskConfig) error
	// Start runs a task in its directory, which exists. When it fails,
	// nothing of the task is left running, and the error is a sentence for
	// the task's owner.
	Start(t Task) (*Process, error)
}

// Task is what a driver needs to start one attempt.
type Task struct {
	Config wire.TaskConfig
	// Dir is the absolute path of the attempt's own directory: where it
	// starts, its HOME, and where its output goes.
	Dir string
	// Env is the whole environment of the task; nothing is added to it.
	Env map[string]string
}

// The files in Task.Dir that take a task's output.
const (
	StdoutFile = "stdout.log"
	StderrFile = "stderr.log"
)

// Cause says why the supervisor ended a process.
type Cause string

// The causes that the supervisor itself knows. Stop takes any other word.
const (
	// CauseNone: the process ended by itself.
	CauseNone Cause = ""
	// CauseTimeout: it ran longer than its timeout.
	CauseTimeout Cause = "Timeout"
)

// Exit tells how a process ended.
type Exit struct {
	Process *Process
	// Code is the exit code, or 128 plus the number of the signal that ended
	// the process.
	Code int
	// Signal is the number of the signal that ended the process, else 0.
	Signal int
	// Cause is why the supervisor ended it.
	Cause Cause
	// Killed tells that SIGTERM did not suffice.
	Killed bool
	At     time.Time
}

// Set holds drivers by the name that a task's spec.driver says.
type Set map[string]Driver

// Builtin returns the drivers that every robot offers.
func Builtin() Set {
	return Set{"exec": Exec{}, "raw_exec": Exec{}}
}

// Names lists the drivers, sorted.
func (s Set) Names() []string { return slices.Sorted(maps.Keys(s)) }

// ErrNoDriver refuses a task for a driver that this robot does not have.
var ErrNoDriver = errors.New("this robot has no such driver")
