// Package driver starts the processes of tasks.
//
// A Driver knows how to start tasks of one kind. It works in the shim of the task
// (package shim), which asks it to start, to signal and to end the task.
//
// The drivers exec and raw_exec start a command in a new session, with a work
// directory of its own and a clean environment, confined as Task says: who decides
// that is the agent, which knows what its host allows of.
package driver

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"syscall"
	"time"

	"k8s4r.io/k8s4r/internal/isolation"
	"k8s4r.io/k8s4r/internal/proc"
	"k8s4r.io/k8s4r/internal/wire"
)

// Driver starts tasks of one kind.
type Driver interface {
	// Check refuses a config that is not whole for this driver, with a
	// sentence that names the field.
	Check(config wire.TaskConfig) error
	// Offered tells whether this robot can run such tasks at the moment. It is
	// asked with every heartbeat, and answers within a second.
	Offered() bool
	// Start runs a task in its directory, which exists. When it fails,
	// nothing of the task is left running, and the error is a sentence for
	// the task's owner.
	Start(t Task) (Running, error)
}

// Preparer is a driver that may have to fetch what a task needs.
type Preparer interface {
	// Prepare comes before Start, and does nothing when all is there. It may take
	// as long as the network does; the end of ctx gives it up. The error is a
	// sentence for the task's owner.
	Prepare(ctx context.Context, config wire.TaskConfig) error
}

// Sweeper is a driver whose tasks are not processes below their shim.
type Sweeper interface {
	// Sweep ends what is left of an attempt whose shim was killed, and waits until
	// it is gone. An error: some of it may still run.
	Sweep(a Attempt) error
}

// Meter is a driver that knows what its tasks use, where this machine's processes do
// not tell.
type Meter interface {
	// Uses is what attempts that run have used so far. It may take seconds, and leaves
	// out what it does not find out.
	Uses(attempts []Attempt) map[Attempt]proc.Use
}

// Attempt names one run of a task.
type Attempt struct {
	UID    string `json:"uid"` // of the task
	Number int32  `json:"number"`
	Robot  string `json:"robot"`
}

// Task is what a driver needs to start one attempt.
type Task struct {
	Config wire.TaskConfig
	// Dir is the absolute path of the task's own directory: where it starts,
	// and its HOME.
	Dir string
	// Env is the whole environment of the task; nothing is added to it.
	Env map[string]string
	// Confinement bounds the task. The zero value leaves it the caller's rights.
	Confinement isolation.Confinement
	// Contained is for a driver that has somebody else confine the task.
	Contained Contained
	// Stdin is what it reads. Nil: nothing.
	Stdin *os.File
	// Stdout and Stderr take the task's output. They stay the caller's.
	Stdout, Stderr *os.File
	// Terminal: Stdin is one, and controls the task's session.
	Terminal bool
	// Files are further descriptors of the task, from 3 on.
	Files []*os.File
}

// Contained is what an engine needs to know of a task beside its config.
type Contained struct {
	// Attempt names the run to whoever lists what runs on the robot.
	Attempt Attempt `json:"attempt"`
	// User to run it as, by the names of its container. Empty: the image's.
	User   string           `json:"user,omitempty"`
	Limits isolation.Limits `json:"limits"`
	// Shared is a directory that the task has at the same path, beside its own.
	// Empty: none.
	Shared string `json:"shared,omitempty"`
}

// Running is a task that was started.
type Running interface {
	// PID of its first process, as this process knows it. Zero: it is none of this
	// machine's.
	PID() int
	// Done is a descriptor that is readable once the first process has ended. It
	// is closed by End.
	Done() int
	// Signal reaches what the task has started and not put aside.
	Signal(s syscall.Signal)
	// Kill ends all of it, whatever it has put aside. Done tells when.
	Kill()
	// End tells how the first process ended, after Done, and ends all others.
	End() End
}

// End tells how a task ended.
type End struct {
	// Code is the exit code, or 128 plus the number of the signal that ended
	// the process.
	Code int
	// Signal is the number of the signal that ended the process, else 0.
	Signal int
	// OOM tells that the kernel has killed some of it for want of memory.
	OOM bool
	// CPU is the time that it has used.
	CPU time.Duration
	// MemoryPeak is the most memory that it had, in bytes: all of it together where
	// it has a control group, else its largest process. Zero: not known.
	MemoryPeak int64
}

// Set holds drivers by the name that a task's spec.driver says.
type Set map[string]Driver

// Builtin returns all drivers, with the unix socket of the Docker engine.
func Builtin(engine string) Set {
	return Set{"exec": Exec{}, "raw_exec": Exec{}, "java": Java{}, "docker": &Docker{Socket: engine}}
}

// Sweep ends what is left of an attempt whose shim was killed, beside processes of
// this machine: the agent finds those by their environment.
func (s Set) Sweep(driver string, a Attempt) error {
	if d, ok := s[driver].(Sweeper); ok {
		return d.Sweep(a)
	}
	return nil
}

// Uses is what attempts of a driver have used so far, as far as it is a Meter.
func (s Set) Uses(driver string, attempts []Attempt) map[Attempt]proc.Use {
	if d, ok := s[driver].(Meter); ok && len(attempts) > 0 {
		return d.Uses(attempts)
	}
	return nil
}

// Names lists the drivers, sorted.
func (s Set) Names() []string { return slices.Sorted(maps.Keys(s)) }

// Offered lists the drivers that this robot can use at the moment, sorted.
func (s Set) Offered() []string {
	return slices.DeleteFunc(s.Names(), func(name string) bool { return !s[name].Offered() })
}

// ErrNoDriver refuses a task for a driver that this robot does not have.
var ErrNoDriver = errors.New("this robot has no such driver")
