package agent

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s4r.io/k8s4r/internal/driver"
	"k8s4r.io/k8s4r/internal/wire"
)

// taskDir is the own directory of one attempt. The UID was checked to be a
// single path element.
func taskDir(stateDir, uid string, attempt int32) string {
	return filepath.Join(stateDir, "tasks", uid, strconv.Itoa(int(attempt)))
}

// makeTaskDir creates it, empty.
func makeTaskDir(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("clear the task's directory: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("create the task's directory: %w", err)
	}
	return nil
}

// removeTaskDir deletes it, and what it was the last of.
func removeTaskDir(stateDir, uid string, attempt int32) error {
	dir := taskDir(stateDir, uid, attempt)
	err := os.RemoveAll(dir)
	_ = os.Remove(filepath.Dir(dir)) // fails while other attempts are kept
	return err
}

// taskEnv is the whole environment of a task. Nothing of the agent's own is in
// it: that may hold its token.
func taskEnv(robot, dir string, t wire.Task, attempt int32) map[string]string {
	env := map[string]string{
		"PATH":             driver.DefaultPath,
		"HOME":             dir,
		"K8S4R_TASK":       t.Spec.Name,
		"K8S4R_TASK_UID":   t.Metadata.UID,
		"K8S4R_JOB":        or(t.Spec.JobName, t.Metadata.Labels[wire.LabelJob]),
		"K8S4R_TASK_GROUP": or(t.Spec.TaskGroupName, t.Metadata.Labels[wire.LabelTaskGroup]),
		"K8S4R_TASK_INDEX": t.Metadata.Labels[wire.LabelTaskIndex],
		"K8S4R_ATTEMPT":    strconv.Itoa(int(attempt)),
		"K8S4R_ROBOT":      robot,
	}
	maps.Copy(env, t.Spec.Env)
	// Last: it is how an agent that starts again finds what is left of a task.
	env[driver.EnvTaskDir] = dir
	return env
}

func or(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// outcome is the report about a process that has ended. Its other fields are
// the caller's.
func outcome(e driver.Exit) wire.Status {
	s := wire.Status{State: wire.ReportFailed, ExitCode: int32(e.Code), Signal: int32(e.Signal)}
	switch {
	case e.Cause == driver.CauseTimeout:
		s.Reason, s.Message = wire.ReasonTimeout, "Task terminated: Task timeout"
		s.ExitCode = terminatedCode(e)
	case e.Cause != driver.CauseNone:
		s.Reason, s.Message = string(e.Cause), stopMessages[string(e.Cause)]
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

// terminatedCode is what a timeout is reported with, whatever the task made of
// SIGTERM (docs/spec/task.md).
func terminatedCode(e driver.Exit) int32 {
	if e.Killed {
		return 128 + int32(syscall.SIGKILL)
	}
	return 128 + int32(syscall.SIGTERM)
}

// stopMessages says for people why the agent ended a task.
var stopMessages = map[string]string{
	wire.ReasonStopped:        "Task was stopped on request",
	wire.ReasonSuperseded:     "Task was stopped because a newer attempt takes its place",
	wire.ReasonAgentStopped:   "Task was stopped because the agent of the robot stops",
	wire.ReasonAgentRestarted: "The agent of the robot was gone while the task ran, so how it ended is not known",
}

// limits are the deadlines of a task.
func limits(s wire.TaskSpec) driver.Limits {
	return driver.Limits{Timeout: time.Duration(s.Timeout), KillTimeout: killTimeout(s)}
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

// sweepTaskDirs deletes the directories that no entry of the journal names.
func sweepTaskDirs(stateDir string, keep func(uid string, attempt int32) bool) {
	found, _ := filepath.Glob(filepath.Join(stateDir, "tasks", "*", "*"))
	for _, dir := range found {
		uid := filepath.Base(filepath.Dir(dir))
		attempt, err := strconv.ParseInt(filepath.Base(dir), 10, 32)
		if err != nil || strings.HasPrefix(uid, ".") || keep(uid, int32(attempt)) {
			continue
		}
		_ = removeTaskDir(stateDir, uid, int32(attempt))
	}
}
