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
	// Job is the name of the task's job. If empty, it has none.
	Job string `json:"job,omitempty"`
	// State is TaskStarting, TaskRunning, TaskRestarting or TaskStopping.
	State string `json:"state"`
	// Reason is how the last run ended while the task waits for the next one, or why the task is stopped.
	Reason string `json:"reason,omitempty"`
	// Run is the number of the last run, from 1. It is 0 if none was started, or the agent does not
	// restart the task.
	Run int64 `json:"run,omitempty"`
	// Restarts is the number of runs after the first.
	Restarts int64 `json:"restarts,omitempty"`
	// NextRunAt is when the next run starts. It is nil unless the task waits for it.
	NextRunAt *time.Time `json:"nextRunAt,omitempty"`
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
	TaskStopping   = "stopping"
	TaskStopped    = "stopped" // a person at the robot has stopped it
)

// FullName returns the namespace and the name of the task.
func (t LiveTask) FullName() string { return t.Namespace + "/" + t.Name }

func (r *Runner) listLiveTasks() []LiveTask {
	all := make([]LiveTask, 0, len(r.live))
	for _, attempt := range r.live {
		all = append(all, r.describeRun(attempt))
	}
	slices.SortFunc(all, func(a, b LiveTask) int { return cmp.Compare(a.UID, b.UID) })
	return all
}

// describeDelay returns why the next run does not start even when it is due. It is empty if that starts then.
func describeDelay(start runStart) string {
	switch start {
	case startAfterMaintenance:
		return "the robot is in maintenance"
	case startWithSecrets:
		return "it waits for contact, to get the values of its secretEnv"
	case startAfterStage:
		return "it waits for another task of its replica"
	default:
		return ""
	}
}

func (r *Runner) describeRun(attempt *attempt) LiveTask {
	m := attempt.task.Metadata
	t := LiveTask{
		Namespace: m.Namespace, Name: m.Name, UID: m.UID, Attempt: attempt.number, Driver: attempt.task.Spec.Driver, State: TaskStarting,
		Job: attempt.task.Spec.JobName, driverAttempt: r.driverAttempt(attempt),
	}
	if x := attempt.restarts; x != nil {
		t.Run, t.Restarts = x.run, max(x.run-1, 0)
	}
	switch {
	case attempt.stopReason != "":
		t.State, t.Reason = TaskStopping, attempt.stopReason
		t.Since = optionalTime(attempt.startedAt)
	case attempt.restarts.isWaiting():
		next := r.wallTime(attempt.restarts.last.next.At)
		t.State, t.Reason, t.NextRunAt = TaskRestarting, describeRunEnd(attempt.restarts.last.status), &next
		if why := describeDelay(r.decideWait(attempt).start); why != "" {
			t.Reason, t.NextRunAt = t.Reason+"; "+why, nil
		}
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
