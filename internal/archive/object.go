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

// Outcome is how an object ended, for all kinds alike.
type Outcome string

// The outcomes. The empty one is that of an object that has not ended.
const (
	Succeeded Outcome = "succeeded"
	Failed    Outcome = "failed"
	Canceled  Outcome = "canceled"
)

// Object is the part of a record by which it is found. Times are kept to the microsecond; zero:
// not yet, or unknown.
type Object struct {
	Kind      Kind
	Namespace string
	// NamespaceUID is the UID of the namespace. Empty: unknown, and only callers that may see all
	// namespaces see the object.
	NamespaceUID string
	Name         string
	UID          string
	// Version is the resourceVersion, which increases with each write of the object.
	Version int64
	// Owner is the UID of the object's controller. Empty: it has none.
	Owner string
	// Template is what objects of one origin have in common, such as the name of the JobTemplate
	// of a Job and its tasks.
	Template string
	// Step is the part of its template: the group and name of a task, or the step of a flow.
	// Empty: none.
	Step string
	// Robot on which a task was last, or the name of a robot. Empty: none.
	Robot string
	// Phase and Reason in the words of the kind. Changed is when the phase was entered; zero:
	// when it was recorded.
	Phase, Reason string
	Changed       time.Time
	Outcome       Outcome
	Created       time.Time
	Started       time.Time
	Finished      time.Time
	// Deleted is when the object was found to be deleted. Zero: it exists. MarkDeleted writes it,
	// Record does not.
	Deleted time.Time
	Labels  map[string]string
	// Attempts of a task to record. Attempts that were recorded before stay.
	Attempts []Attempt
	// Manifest is the whole object. Lists leave it out.
	Manifest json.RawMessage
}

// Attempt is one placement of a task on a robot, with all runs of its process there.
type Attempt struct {
	// TaskUID, Namespace, Task, Job, Template and Step identify the task. Record fills in all but
	// Job.
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
	// Failed is set if it counts as a failure of the task.
	Failed bool
	// ExitCode of the process. Nil: it has none.
	ExitCode *int64
	// Signal that ended the process. Zero: none.
	Signal int64
	// RunCount is how often the robot started the process. Zero: its agent does not restart tasks.
	RunCount int64
	// Started and Finished are by the robot's clock: the start of the first run and the end of the last.
	Started, Finished time.Time
	// Log is the path of the attempt's output in the log API, while the server keeps it.
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

// validateObject returns an error if the object cannot be recorded.
func (o *Object) validateObject() error {
	switch {
	case o.UID == "":
		return fmt.Errorf("%s %s/%s: uid is missing; only objects that the API server has stored can be archived", o.Kind, o.Namespace, o.Name)
	case o.Version <= 0:
		return fmt.Errorf("%s %s/%s: resourceVersion must be a positive number", o.Kind, o.Namespace, o.Name)
	case o.Kind == "":
		return fmt.Errorf("object %s/%s: kind is missing", o.Namespace, o.Name)
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

// storedBytes returns the size for which the object counts.
func (o *Object) storedBytes() int64 {
	return int64(len(o.Manifest)) + rowBytes + attemptBytes*int64(len(o.Attempts))
}
