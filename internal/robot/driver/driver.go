// Package driver starts the processes of tasks.
//
// A Driver starts tasks of one kind. It runs in the shim of the task (package shim), which starts,
// signals and ends the task through it.
//
// The drivers exec and raw_exec start a command in a new session, with its own work directory and
// a clean environment. They confine it by Task.Confinement. The agent decides that, since it knows
// what the robot supports. The driver docker is in a package of its own.
package driver

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"syscall"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/isolation"
	"k8s4r.io/k8s4r/internal/robot/proc"
)

// Driver starts tasks of one kind.
type Driver interface {
	// Check returns an error that names the field if the config is not complete and well formed.
	Check(config wire.TaskConfig) error
	// Offered reports whether this robot can run such tasks at the moment. It is called with every
	// heartbeat and must return within a second.
	Offered() bool
	// Start runs a task in its directory, which must exist. On an error, no process of the task is
	// left, and the error is a sentence for the user.
	Start(t Task) (Running, error)
}

// Preparer is a driver that may have to fetch something before the task can start.
type Preparer interface {
	// Prepare is called before Start and does nothing if everything is there. It may take as long
	// as the network does, until ctx is done. The error is a sentence for the user.
	Prepare(ctx context.Context, config wire.TaskConfig) error
}

// Sweeper is a driver whose tasks are not processes below their shim.
type Sweeper interface {
	// Sweep ends what is left of a run whose shim was killed, and of earlier runs of its attempt, and
	// waits until it is gone. On an error, some of it may still run. A later run is left alone.
	Sweep(a Attempt) error
}

// Meter is a driver that measures the usage of its tasks itself, because they are not processes
// below their shim.
type Meter interface {
	// MeasureUse returns what running attempts have used so far. It may take seconds. Attempts
	// whose usage is unknown are left out.
	MeasureUse(attempts []Attempt) map[Attempt]proc.Use
}

// Attempt identifies one run of an attempt of a task.
type Attempt struct {
	UID    string `json:"uid"` // of the task
	Number int32  `json:"number"`
	Run    int64  `json:"run"`
	Robot  string `json:"robot"`
}

// Task is what a driver needs to start one attempt.
type Task struct {
	Config wire.TaskConfig
	// Dir is the absolute path of the task's own directory: its HOME and where it starts.
	Dir string
	// Env is the complete environment of the task.
	Env map[string]string
	// Confinement isolates the task. The zero value gives it the rights of the caller.
	Confinement isolation.Confinement
	// Contained is for drivers whose tasks a container engine isolates.
	Contained Contained
	// Stdin is the task's standard input. If nil, it is empty.
	Stdin *os.File
	// Stdout and Stderr receive the task's output. The caller closes them.
	Stdout, Stderr *os.File
	// Terminal reports whether Stdin is a terminal, which becomes the controlling terminal of the
	// session.
	Terminal bool
	// TimerSlack is by how many nanoseconds the task's timers may be late. If zero, it is that of the
	// caller.
	TimerSlack int
	// Files become the descriptors of the task from 3 on.
	Files []*os.File
	// Index of a range, of which each index is a Task. If nil, there is no range.
	Index *RangeIndex
}

// RangeIndex is one of several tasks that follow each other in the same confinement, each after the
// End of the one before.
type RangeIndex struct {
	// Index is its number.
	Index int32
	// OOMKills is End.OOMKills of the one before.
	OOMKills int64
}

// Contained is what a container engine needs to know about a task besides its config.
type Contained struct {
	// Attempt is stored in the labels of the container.
	Attempt Attempt `json:"attempt"`
	// User is the user to run the task as, as named in its image. If empty, it is the image's user
	// unless that is root.
	User string `json:"user,omitempty"`
	// TaskUser is the robot's user for tasks that name none, as UID:GID. It takes the place of
	// root in an image. If empty, such an image cannot run.
	TaskUser string           `json:"taskUser,omitempty"`
	Limits   isolation.Limits `json:"limits"`
	// Shared is a directory that the task sees at the same path, besides its own. If empty, there
	// is none.
	Shared string `json:"shared,omitempty"`
}

// Running is a task that was started.
type Running interface {
	// PID returns the first process, as seen by this process. If zero, the task is not a process
	// below this one.
	PID() int
	// Done returns a descriptor that is readable once the first process has exited. End closes it.
	Done() int
	// Signal sends a signal to the processes of the task, except daemonized ones.
	Signal(s syscall.Signal)
	// Kill kills all processes of the task, including daemonized ones. Done reports when the first
	// has exited.
	Kill()
	// End returns how the first process ended, and ends all others. It is called after Done is
	// readable.
	End() End
}

// End describes how a task ended.
type End struct {
	// Code is the exit code, or 128 plus the number of the signal that ended the process.
	Code int
	// Signal is the number of the signal that ended the process, or 0.
	Signal int
	// OOM reports whether the kernel killed a process of the task for lack of memory.
	OOM bool
	// OOMKills is how many processes the kernel has killed so far in the cgroup of a RangeIndex.
	OOMKills int64
	// CPU is the CPU time that the task used. It is not measured for a RangeIndex, nor is MemoryPeak:
	// MeasureUse does so for all of them.
	CPU time.Duration
	// MemoryPeak is the most memory that the task used, in bytes: all its processes together if it
	// has a cgroup, else its largest process. If zero, it is unknown.
	MemoryPeak int64
}

// Set maps the values of a task's spec.driver to drivers.
type Set map[string]Driver

// NewProcessSet returns the drivers whose tasks are processes of this robot. Package builtin has all
// drivers.
func NewProcessSet() Set { return Set{"exec": Exec{}, "raw_exec": Exec{}, "java": Java{}} }

// Sweep ends what is left of a run whose shim was killed, if the driver is a Sweeper. The
// agent finds processes of this robot itself, by their environment.
func (s Set) Sweep(driver string, a Attempt) error {
	if d, ok := s[driver].(Sweeper); ok {
		return d.Sweep(a)
	}
	return nil
}

// MeasureUse returns what attempts have used so far. If the driver is not a Meter, the result is
// empty.
func (s Set) MeasureUse(driver string, attempts []Attempt) map[Attempt]proc.Use {
	if d, ok := s[driver].(Meter); ok && len(attempts) > 0 {
		return d.MeasureUse(attempts)
	}
	return nil
}

// Names returns the names of the drivers, sorted.
func (s Set) Names() []string { return slices.Sorted(maps.Keys(s)) }

// Offered returns the names of the drivers that this robot can use at the moment, sorted.
func (s Set) Offered() []string {
	return slices.DeleteFunc(s.Names(), func(name string) bool { return !s[name].Offered() })
}

// ErrNoDriver rejects a task whose driver this robot does not have.
var ErrNoDriver = errors.New("this robot has no such driver")
