package gateway

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/taskstate"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// ReasonAttemptAdopted is the reason of a Task whose current attempt was read from its robot's
// journal after a restore, until the robot has reported about it.
const ReasonAttemptAdopted = "AttemptAdopted"

// journaledAttempt is an attempt in the journal of a robot.
type journaledAttempt struct {
	robot *robotv1.Robot
	wire.JournalEntry
}

// attemptRange are the numbers of the attempts that a backup does not have: above known, the highest
// one in the backup, and below first, the lowest one after the restore.
type attemptRange struct{ known, first int32 }

// adoptAttempt returns the status of a Task with an attempt that the restored backup does not have.
// It returns nil if there is nothing to add, or it is too late, because an attempt has started since.
//
// The attempt becomes the current one if it is newer, or has completed, which is final. Its state is
// then dispatching: the robot answers from its journal, with all details. The ends of the others are
// asked for by the task list (canceledAttempts).
func adoptAttempt(t *robotv1.Task, e journaledAttempt, missing attemptRange) *robotv1.TaskStatus {
	to, isLegal := lifecycle.StepTask(lifecycle.TaskState(t.Status.State), lifecycle.TaskRestore)
	if !isLegal || t.DeletionTimestamp != nil || !missing.includes(&t.Status, e.Attempt) || !mayRun(t, e.robot) {
		return nil
	}
	s, isCurrent := t.Status.DeepCopy(), isNewCurrent(t, e)
	if was := s.FindAttempt(s.Attempt); isCurrent && was != nil && was.FinishedAt == nil && !isDecided(was) && was.Attempt != s.LostAttempt {
		was.State, was.Reason = string(lifecycle.TaskCanceled), wire.ReasonSuperseded
	}
	insertAttempt(s, newAttempt(t, e, isCurrent))
	if isCurrent {
		s.State = string(to)
		makeCurrent(s, e)
		if !t.IsRange() { // those of indexes that do not run again stay
			s.Outputs = nil
		}
	}
	return s
}

// includes reports whether the Task lacks this attempt, and none has started since the restore.
func (r attemptRange) includes(s *robotv1.TaskStatus, attempt int32) bool {
	return attempt > r.known && max(attempt, highestAttempt(s)) < r.first && s.FindAttempt(attempt) == nil
}

// isNewCurrent reports whether the attempt replaces the current one. An attempt of a task that is kept
// running does not complete the task.
func isNewCurrent(t *robotv1.Task, e journaledAttempt) bool {
	if robotv1.IsKeptRunning(t.Spec.Type) {
		return e.Attempt > t.Status.Attempt
	}
	was := t.Status.FindAttempt(t.Status.Attempt)
	hasCompleted := was != nil && was.FinishedAt == nil && was.State == string(lifecycle.TaskCompleted) // adopted before
	return !hasCompleted && (e.Attempt > t.Status.Attempt || e.State == wire.ReportCompleted)
}

// mayRun reports whether the robot could have been given the Task. A robot must not be able to take a
// Task from another one by its journal.
func mayRun(t *robotv1.Task, r *robotv1.Robot) bool {
	return r.ServesNamespace(t.Namespace) && (taskstate.CanChangeRobot(t) || t.Spec.TargetRobot == "" || t.Spec.TargetRobot == r.Name)
}

func highestAttempt(s *robotv1.TaskStatus) int32 {
	last := s.Attempt
	for i := range s.Attempts {
		last = max(last, s.Attempts[i].Attempt)
	}
	return last
}

// newAttempt returns the entry of an attempt in the history. One that has completed is marked, so
// that no later one replaces it. The current one is marked as adopted until its end.
func newAttempt(t *robotv1.Task, e journaledAttempt, isCurrent bool) robotv1.TaskAttempt {
	a := robotv1.TaskAttempt{Attempt: e.Attempt, Robot: e.robot.Name, State: string(lifecycle.TaskDispatching)}
	if e.robot.Namespace != t.Namespace {
		a.RobotNamespace = e.robot.Namespace
	}
	if isCurrent {
		a.Reason = ReasonAttemptAdopted
	}
	switch {
	case e.State == wire.ReportCompleted:
		a.State = string(lifecycle.TaskCompleted)
	case isCurrent:
	case e.State == wire.ReportFailed:
		a.State = string(lifecycle.TaskFailed)
	default:
		a.State, a.Reason = string(lifecycle.TaskCanceled), wire.ReasonSuperseded
	}
	return a
}

// insertAttempt adds an attempt in the order of the numbers, and drops the oldest ones beyond the
// limit.
func insertAttempt(s *robotv1.TaskStatus, a robotv1.TaskAttempt) {
	s.Attempts = append(s.Attempts, a)
	slices.SortStableFunc(s.Attempts, func(a, b robotv1.TaskAttempt) int { return cmp.Compare(a.Attempt, b.Attempt) })
	for len(s.Attempts) > robotv1.MaxAttempts {
		oldest := slices.IndexFunc(s.Attempts, func(o robotv1.TaskAttempt) bool {
			return o.Attempt != s.LostAttempt && o.Attempt != s.Attempt && o.Attempt != a.Attempt
		})
		s.Attempts = slices.Delete(s.Attempts, oldest, oldest+1)
	}
}

// makeCurrent makes an attempt of the history the current one.
func makeCurrent(s *robotv1.TaskStatus, e journaledAttempt) {
	if len(s.Attempts) > 1 {
		taskstate.AddRestarts(s, s.FindAttempt(s.Attempt))
		s.RestartCount = min(s.RestartCount, math.MaxInt32-1) + 1
	}
	s.Attempt = e.Attempt
	s.StartedAt, s.FinishedAt, s.ExitCode, s.Signal, s.Resources, s.RetryAt = nil, nil, nil, 0, nil, nil
	s.Reason = ReasonAttemptAdopted
	s.Message = fmt.Sprintf("robot %s reported attempt %d, which is newer than the restored backup", e.robot.Name, e.Attempt)
	meta.RemoveStatusCondition(&s.Conditions, robotv1.ConditionAccepted)
	meta.SetStatusCondition(&s.Conditions, metav1.Condition{
		Type: robotv1.ConditionPlaced, Status: metav1.ConditionTrue, Reason: ReasonAttemptAdopted, Message: "on robot " + e.robot.Name,
	})
}
