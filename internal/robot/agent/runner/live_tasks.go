package agent

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"k8s4r.io/k8s4r/internal/driver"
	"k8s4r.io/k8s4r/internal/wire"
)

// question asks the runner what lives. The answer has room for one.
type question struct{ answer chan<- []LiveTask }

// LiveTask is an attempt that is alive, for people.
type LiveTask struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	UID       string `json:"uid"`
	Attempt   int32  `json:"attempt"`
	Driver    string `json:"driver,omitempty"`
	// State is TaskStarting or TaskRunning.
	State string `json:"state"`
	// PID is of the task's first process. Zero: not started, or not of this machine.
	PID int `json:"pid,omitempty"`
	// Since is when it started. Nil: not yet.
	Since *time.Time `json:"since,omitempty"`
	// Use is of when the last heartbeat was sent. Nil: not measured yet.
	Use *wire.ResourceUse `json:"use,omitempty"`

	name   driver.Attempt
	shim   int    // the process of its shim; zero: none yet
	cgroup string // the name that its control group would have
}

// The states of a LiveTask.
const (
	TaskStarting = "starting"
	TaskRunning  = "running"
)

// errBusy says that the runner does not come round to its messages: as a rule the
// disk does not take the journal.
var errBusy = errors.New("the agent is busy with its disk and takes on nothing")

// ask returns what lives, in the order of UIDs. It fails when the runner does not
// answer before ctx ends.
func (a *Agent) ask(ctx context.Context) ([]LiveTask, error) {
	answer := make(chan []LiveTask, 1)
	select {
	case a.runner.inbox <- question{answer}:
	case <-ctx.Done():
		return nil, errBusy
	}
	select {
	case tasks := <-answer:
		return tasks, nil
	case <-ctx.Done():
		return nil, errBusy
	}
}

// survey is what lives.
func (r *runner) survey() []LiveTask {
	all := make([]LiveTask, 0, len(r.live))
	for _, run := range r.live {
		all = append(all, r.describe(run))
	}
	slices.SortFunc(all, func(a, b LiveTask) int { return cmp.Compare(a.UID, b.UID) })
	return all
}

func (r *runner) describe(run *run) LiveTask {
	m := run.task.Metadata
	t := LiveTask{
		Namespace: m.Namespace, Name: m.Name, UID: m.UID, Attempt: run.attempt, Driver: run.task.Spec.Driver, State: TaskStarting,
		name: r.name(run),
	}
	if !run.startedAt.IsZero() {
		since := run.startedAt
		t.State, t.Since = TaskRunning, &since
	}
	if run.shim != nil {
		t.shim, t.cgroup = run.shim.PID, cgroupName(m.UID, run.attempt)
	}
	if e, known := r.journal.Get(m.UID, run.attempt); known && e.Process != nil {
		t.PID = e.Process.PID
	}
	return t
}
