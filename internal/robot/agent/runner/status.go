package runner

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"syscall"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/shim"
)

// statusOfExit returns the report about a task that has exited. The caller completes it.
func statusOfExit(e shim.Exit) wire.Status {
	if e.Error != "" {
		s := startFailedStatus(errors.New(e.Error))
		s.FinishedAt = utcPointer(e.At)
		return s
	}
	s := wire.Status{State: wire.ReportFailed, ExitCode: int32(e.Code), Signal: int32(e.Signal), FinishedAt: utcPointer(e.At), Outputs: e.Outputs, Resources: totalUsage(e)}
	switch {
	case e.StopReason == wire.ReasonTimeout:
		s.Reason, s.Message = wire.ReasonTimeout, "Task terminated: Task timeout"
		s.ExitCode = timeoutExitCode(e)
	case e.StopReason != "":
		s.Reason, s.Message = e.StopReason, stopMessages[e.StopReason]
	case e.Code == 0:
		s.State, s.Message = wire.ReportCompleted, "Task completed"
	case e.Signal != 0:
		s.Reason = wire.ReasonSignaled
		s.Message = fmt.Sprintf("Task was killed by signal %d (%s)", e.Signal, syscall.Signal(e.Signal))
	default:
		s.Reason, s.Message = wire.ReasonExited, fmt.Sprintf("Task exited with code %d", e.Code)
	}
	s.Event = cmp.Or(s.Reason, "Completed")
	return s
}

// totalUsage returns what a task has used in total. It is nil if it was not measured.
func totalUsage(e shim.Exit) *wire.ResourceUsage {
	if e.CPU == 0 && e.MemoryPeak == 0 {
		return nil
	}
	return &wire.ResourceUsage{CPUSeconds: math.Round(e.CPU.Seconds()*1000) / 1000, MemoryPeakBytes: uint64(max(e.MemoryPeak, 0))}
}

func utcPointer(t time.Time) *time.Time {
	t = t.UTC()
	return &t
}

// unknownEndStatus returns the report about an attempt whose end is not known.
func unknownEndStatus() wire.Status {
	return wire.Status{
		State: wire.ReportFailed, ExitCode: -1,
		Reason: wire.ReasonAgentRestarted, Event: wire.ReasonAgentRestarted, Message: stopMessages[wire.ReasonAgentRestarted],
	}
}

// timeoutExitCode returns the exit code that is reported for a timeout, however the task
// handled SIGTERM.
func timeoutExitCode(e shim.Exit) int32 {
	if e.Killed {
		return 128 + int32(syscall.SIGKILL)
	}
	return 128 + int32(syscall.SIGTERM)
}

// stopMessages maps the reasons for which the agent ends tasks to messages for users.
var stopMessages = map[string]string{
	wire.ReasonStopped:           "Task was stopped on request",
	wire.ReasonSuperseded:        "Task was stopped because a newer attempt replaces it",
	wire.ReasonAgentStopped:      "Task was stopped because its robot or the robot's agent was stopped",
	wire.ReasonAgentRestarted:    "The robot or the task's shim was killed, so it is not known how the task ended",
	wire.ReasonRobotRebooted:     "The robot was restarted",
	wire.ReasonOOMKilled:         "Task was killed by the kernel because it used more memory than its resources.memory",
	wire.ReasonDiskQuotaExceeded: "Task was stopped because its replica used more disk space than its ephemeralDisk.sizeMB",
	wire.ReasonTemplateChanged:   "Task was stopped because one of its templates changed; it will be restarted",
	wire.ReasonStoppedAtRobot:    "Task was stopped at the robot",
	wire.ReasonRestartedAtRobot:  "Task was restarted at the robot",
	wire.ReasonMaintenance:       "The robot is in maintenance",
	wire.ReasonPaused:            "Task was asked to start no further process",
	wire.ReasonSelfStopped:       "Task was stopped by its robot because the server acknowledged no heartbeat for stopOnRobotAfter",
}

// killTimeout returns the time between SIGTERM and SIGKILL of a task.
func killTimeout(s wire.TaskSpec) time.Duration {
	if s.KillTimeout == nil {
		return wire.DefaultKillTimeout
	}
	return time.Duration(*s.KillTimeout)
}

// validateDispatch returns why a dispatch is not for this robot or invalid. The UID must be
// usable in topics and as the name of a directory.
func validateDispatch(robot string, d wire.Dispatch) error {
	if _, err := wire.ParseTopic(wire.TaskTopic(robot, d.Task.Metadata.UID, wire.KindStatus)); err != nil {
		return err
	}
	if to := d.Task.Spec.TargetRobot; to != "" && to != robot {
		return fmt.Errorf("task %.100q is bound to robot %.100q", d.Task.Metadata.UID, to)
	}
	if d.Action != wire.ActionCreate && d.Action != wire.ActionDelete {
		return fmt.Errorf("unknown action %.100q", d.Action)
	}
	if d.Attempt < 0 {
		return fmt.Errorf("attempt %d is negative", d.Attempt)
	}
	return nil
}
