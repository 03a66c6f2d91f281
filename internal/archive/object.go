package archive

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Kind of an archived object. Two of our kinds are called Job, so the one of Pods has
// another name here.
type Kind string

// The kinds that are archived.
const (
	Job        Kind = "Job"
	TaskGroup  Kind = "TaskGroup"
	Task       Kind = "Task"
	Robot      Kind = "Robot"
	JobFlow    Kind = "JobFlow"
	VCJob      Kind = "VCJob"
	RayCluster Kind = "RayCluster"
)

// Outcome is how an object ended, in one word for all kinds.
type Outcome string

// The outcomes. The empty one is that of an object that has not ended.
const (
	Succeeded Outcome = "succeeded"
	Failed    Outcome = "failed"
	Canceled  Outcome = "canceled"
)

// Object is what is kept of an object beside its manifest: what it can be found by. Times
// are kept to the microsecond; zero: not yet, or unknown.
type Object struct {
	Kind      Kind
	Namespace string
	Name      string
	UID       string
	// Version is the resourceVersion, which grows with each write of the object.
	Version int64
	// Owner is the UID of the object's controller. Empty: it has none.
	Owner string
	// Template is what objects of one make have in common: the name of the JobTemplate
	// of a Job and its tasks, or what else their names were made of.
	Template string
	// Step is the part that the object is of its template: the group and name of a task,
	// or the step of a flow. Empty: it is no part.
	Step string
	// Robot that a task was on last, or that the object is. Empty: none.
	Robot string
	// Phase in the words of the kind, and Reason why. Changed is when it came to be; zero:
	// when it was recorded.
	Phase, Reason string
	Changed       time.Time
	Outcome       Outcome
	Created       time.Time
	Started       time.Time
	Finished      time.Time
	// Deleted is when the object was seen to be gone. Zero: it was not. Record does not
	// write it, Deleted does.
	Deleted time.Time
	Labels  map[string]string
	// Attempts of a task that are to be kept. Those that were recorded before stay.
	Attempts []Attempt
	// Manifest is the whole object. Lists leave it out.
	Manifest json.RawMessage
}

// Attempt is one run of a task, or the try of one.
type Attempt struct {
	// TaskUID, Namespace, Task, Job, Template and Step say of what. Record fills in all
	// but Job.
	TaskUID   string
	Namespace string
	Task      string
	Job       string
	Template  string
	Step      string
	// Number of the attempt, from 1.
	Number int64
	Robot  string
	// State and Reason in the words of the task's status.
	State, Reason string
	// Failed: it counts as a failure of the task.
	Failed bool
	// ExitCode of the process. Nil: it has none.
	ExitCode *int64
	// Signal that ended the process. Zero: none.
	Signal int64
	// Started and Finished are by the robot's clock.
	Started, Finished time.Time
	// Log is the path under which the log API has what the attempt wrote, for as long as
	// the server keeps it.
	Log string
}

// Transition is a change of an object's phase.
type Transition struct {
	// Version of the object that first had the new phase.
	Version int64
	At      time.Time
	// From is empty for the first phase that was recorded.
	From, To string
	Reason   string
}

// ErrNotFound is the error for what is not in the archive.
var ErrNotFound = errors.New("not in the archive")

// check tells what an object lacks to be recorded.
func (o *Object) check() error {
	switch {
	case o.UID == "":
		return fmt.Errorf("%s %s/%s: it has no uid; only what the API server has stored can be archived", o.Kind, o.Namespace, o.Name)
	case o.Version <= 0:
		return fmt.Errorf("%s %s/%s: its resourceVersion is no number above zero", o.Kind, o.Namespace, o.Name)
	case o.Kind == "":
		return fmt.Errorf("object %s/%s: it has no kind", o.Namespace, o.Name)
	}
	return nil
}

const (
	// rowBytes is what an object takes beside its manifest, with its labels, its
	// transitions and the indexes; attemptBytes is what an attempt takes. Both were measured
	// by make bench-archive.
	rowBytes     = 2048
	attemptBytes = 768
)

// bytes that the object counts for.
func (o *Object) bytes() int64 {
	return int64(len(o.Manifest)) + rowBytes + attemptBytes*int64(len(o.Attempts))
}
