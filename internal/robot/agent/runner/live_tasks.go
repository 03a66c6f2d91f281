package runner

import (
	"cmp"
	"slices"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/driver"
)

// LiveTask is a live attempt, as users see it.
type LiveTask struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	UID       string `json:"uid"`
	Attempt   int32  `json:"attempt"`
	Driver    string `json:"driver,omitempty"`
	// State is TaskStarting, TaskRunning or TaskRestarting.
	State string `json:"state"`
	// PID is the task's first process. It is zero if the task was not started, or runs in
	// a container.
	PID int `json:"pid,omitempty"`
	// Since is when it started. It is nil if it has not.
	Since *time.Time `json:"since,omitempty"`
	// Usage was measured for the last heartbeat. If nil, it was not measured yet.
	Usage *wire.ResourceUsage `json:"usage,omitempty"`

	driverAttempt driver.Attempt
	shimPID       int    // zero: no shim yet
	cgroupName    string // of its control group, if the robot has control groups
}

// The states of a LiveTask.
const (
	TaskStarting   = "starting"
	TaskRunning    = "running"
	TaskRestarting = "restarting" // it waits for its next run
)

func (r *Runner) listLiveTasks() []LiveTask {
	all := make([]LiveTask, 0, len(r.live))
	for _, attempt := range r.live {
		all = append(all, r.describeRun(attempt))
	}
	slices.SortFunc(all, func(a, b LiveTask) int { return cmp.Compare(a.UID, b.UID) })
	return all
}

func (r *Runner) describeRun(attempt *attempt) LiveTask {
	m := attempt.task.Metadata
	t := LiveTask{
		Namespace: m.Namespace, Name: m.Name, UID: m.UID, Attempt: attempt.number, Driver: attempt.task.Spec.Driver, State: TaskStarting,
		driverAttempt: r.driverAttempt(attempt),
	}
	switch {
	case attempt.restarts.isWaiting():
		t.State = TaskRestarting
	case !attempt.startedAt.IsZero():
		since := attempt.startedAt
		t.State, t.Since = TaskRunning, &since
	}
	if attempt.shim != nil {
		t.shimPID, t.cgroupName = attempt.shim.PID, cgroupName(m.UID, attempt.number)
	}
	if e, known := r.journal.Get(m.UID, attempt.number); known && e.Process != nil {
		t.PID = e.Process.PID
	}
	return t
}
