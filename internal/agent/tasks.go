package agent

import (
	"errors"
	"fmt"
	"math"
	"syscall"
	"time"

	"k8s4r.io/k8s4r/internal/shim"
	"k8s4r.io/k8s4r/internal/wire"
)

func or(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// outcome is the report about a task that has ended. Its other fields are the
// caller's.
func outcome(e shim.Exit) wire.Status {
	if e.Error != "" {
		s := startFailed(errors.New(e.Error))
		s.FinishedAt = at(e.At)
		return s
	}
	s := wire.Status{State: wire.ReportFailed, ExitCode: int32(e.Code), Signal: int32(e.Signal), FinishedAt: at(e.At), Outputs: e.Outputs, Resources: total(e)}
	switch {
	case e.Cause == wire.ReasonTimeout:
		s.Reason, s.Message = wire.ReasonTimeout, "Task terminated: Task timeout"
		s.ExitCode = terminatedCode(e)
	case e.Cause != "":
		s.Reason, s.Message = e.Cause, stopMessages[e.Cause]
	case e.Code == 0:
		s.State, s.Message = wire.ReportCompleted, "Task completed"
	case e.Signal != 0:
		s.Reason = wire.ReasonSignaled
		s.Message = fmt.Sprintf("Task was ended by signal %d (%s)", e.Signal, syscall.Signal(e.Signal))
	default:
		s.Reason, s.Message = wire.ReasonExited, fmt.Sprintf("Task exited with code %d", e.Code)
	}
	s.Event = or(s.Reason, "Completed")
	return s
}

// total is what a task has used in all. Nil: nobody has counted.
func total(e shim.Exit) *wire.ResourceUse {
	if e.CPU == 0 && e.MemoryPeak == 0 {
		return nil
	}
	return &wire.ResourceUse{CPUSeconds: math.Round(e.CPU.Seconds()*1000) / 1000, MemoryPeakBytes: uint64(max(e.MemoryPeak, 0))}
}

func at(t time.Time) *time.Time {
	t = t.UTC()
	return &t
}

// unknownEnd is the report about an attempt of which nobody can tell how it ended.
func unknownEnd() wire.Status {
	return wire.Status{
		State: wire.ReportFailed, ExitCode: -1,
		Reason: wire.ReasonAgentRestarted, Event: wire.ReasonAgentRestarted, Message: stopMessages[wire.ReasonAgentRestarted],
	}
}

// terminatedCode is what a timeout is reported with, whatever the task made of
// SIGTERM (docs/spec/task.md).
func terminatedCode(e shim.Exit) int32 {
	if e.Killed {
		return 128 + int32(syscall.SIGKILL)
	}
	return 128 + int32(syscall.SIGTERM)
}

// stopMessages says for people why the agent ended a task.
var stopMessages = map[string]string{
	wire.ReasonStopped:           "Task was stopped on request",
	wire.ReasonSuperseded:        "Task was stopped because a newer attempt takes its place",
	wire.ReasonAgentStopped:      "Task was stopped because the agent of the robot stops",
	wire.ReasonAgentRestarted:    "The robot went down, or what watched over the task was killed, so how it ended is not known",
	wire.ReasonOOMKilled:         "Task was ended by the kernel, because it used more memory than its resources.memory says",
	wire.ReasonDiskQuotaExceeded: "Task was stopped because its replica had more on the disk than its ephemeralDisk.sizeMB says",
	wire.ReasonTemplateChanged:   "Task was stopped because what one of its templates says has changed, and runs again",
	wire.ReasonOutOfContact:      "Task was stopped by its robot, which was out of contact for as long as stopOnRobotAfter says",
}

func killTimeout(s wire.TaskSpec) time.Duration {
	if s.KillTimeout == nil {
		return wire.DefaultKillTimeout
	}
	return time.Duration(*s.KillTimeout)
}

// fitsThisRobot refuses a dispatch that cannot be meant for this agent, or
// whose UID would not serve as a topic and as the name of a directory.
func fitsThisRobot(robot string, d wire.Dispatch) error {
	if _, err := wire.ParseTopic(wire.TaskTopic(robot, d.Task.Metadata.UID, wire.KindStatus)); err != nil {
		return err
	}
	if to := d.Task.Spec.TargetRobot; to != "" && to != robot {
		return fmt.Errorf("task %.100q is for robot %.100q", d.Task.Metadata.UID, to)
	}
	if d.Action != wire.ActionCreate && d.Action != wire.ActionDelete {
		return fmt.Errorf("action %.100q is not known", d.Action)
	}
	if d.Attempt < 0 {
		return fmt.Errorf("attempt %d is negative", d.Attempt)
	}
	return nil
}
