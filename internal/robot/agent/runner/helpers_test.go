package runner

import (
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/agent/logship"
	"k8s4r.io/k8s4r/internal/robot/driver"
	"k8s4r.io/k8s4r/internal/robot/shim"
	"k8s4r.io/k8s4r/internal/robot/shim/supervisor"
)

// noShims is a keeper that starts nothing.
type noShims struct{}

func (noShims) Start(shim.Spec, string) (*supervisor.Shim, error)             { return nil, driver.ErrNoDriver }
func (noShims) Kill(*supervisor.Shim) error                                   { return nil }
func (noShims) Adopt(string) (*supervisor.Shim, shim.State, error)            { return nil, shim.State{}, nil }
func (noShims) ReadState(*supervisor.Shim) (shim.State, error)                { return shim.State{}, nil }
func (noShims) Pause(*supervisor.Shim) error                                  { return nil }
func (noShims) Stop(*supervisor.Shim, string, time.Duration) error            { return nil }
func (noShims) UpdateAttributes(*supervisor.Shim, wire.RobotAttributes) error { return nil }
func (noShims) Events() <-chan struct{}                                       { return nil }
func (noShims) Updates() []supervisor.Update                                  { return nil }

// noLogs sends no logs.
type noLogs struct{}

func (noLogs) AddLog(logship.Attempt, string) {}
func (noLogs) EndLog(logship.Attempt)         {}

const robot = "r1"

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// shell returns a task that runs a script.
func shell(uid, script string, change ...func(*wire.Task)) wire.Task {
	t := wire.Task{
		Metadata: wire.TaskMeta{Name: "task-" + uid, Namespace: "default", UID: uid},
		Spec: wire.TaskSpec{
			Name: "main", JobName: "job", TaskGroupName: "group", Driver: "raw_exec",
			Config: wire.TaskConfig{Exec: &wire.ExecConfig{Command: "sh", Args: []string{"-c", script}}},
		},
	}
	for _, c := range change {
		c(&t)
	}
	return t
}

// onDisk gives the task an ephemeralDisk and makes it part of a replica.
func onDisk(d wire.EphemeralDisk, group string) func(*wire.Task) {
	return func(t *wire.Task) {
		t.Spec.EphemeralDisk = &d
		t.Metadata.Labels = map[string]string{wire.LabelTaskIndex: "0"}
		t.Metadata.Owners = []wire.Owner{{UID: "job"}, {UID: group, Controller: true}}
	}
}

// noReports is a queue that sends no reports.
type noReports struct{}

func (noReports) Put(wire.Status)              {}
func (noReports) Acknowledge(wire.TaskAck)     {}
func (noReports) IsPending(string, int32) bool { return false }

// noProblems is a log that drops all problems.
type noProblems struct{}

func (noProblems) Warn(string, error)        {}
func (noProblems) WarnDropped(string, error) {}
