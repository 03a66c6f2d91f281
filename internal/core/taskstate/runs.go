package taskstate

import (
	"math"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
)

// NextRunAt returns when the robot starts the next run of the current attempt, by the robot's clock. Nil
// if the task does not wait for that.
func NextRunAt(t *v1alpha1.Task) *metav1.MicroTime {
	a := t.Status.FindAttempt(t.Status.Attempt)
	if a == nil || lifecycle.TaskState(t.Status.State) != lifecycle.TaskRunning {
		return nil
	}
	return a.NextRunAt
}

// IsRunning reports whether the process of the task runs. A task whose robot is about to start the next
// run is in state running, too.
func IsRunning(t *v1alpha1.Task) bool {
	return lifecycle.TaskState(t.Status.State) == lifecycle.TaskRunning && NextRunAt(t) == nil
}

// CurrentRun returns the number of the last run of the current attempt. 0 before the first, and if the
// robot's agent does not restart tasks itself.
func CurrentRun(t *v1alpha1.Task) int64 {
	if a := t.Status.FindAttempt(t.Status.Attempt); a != nil {
		return a.RunCount
	}
	return 0
}

// LastRunStart returns when the last run of an attempt started, by the robot's clock, or when the attempt did
// if that run did not. Nil if unknown.
func LastRunStart(a *v1alpha1.TaskAttempt) *metav1.MicroTime {
	if n := len(a.Runs); n > 0 && a.Runs[n-1].StartedAt != nil {
		return a.Runs[n-1].StartedAt
	}
	return a.StartedAt
}

// HasLastRunStarted reports whether the last run of an attempt is known to have started.
func HasLastRunStarted(a *v1alpha1.TaskAttempt) bool {
	if n := len(a.Runs); n > 0 {
		return a.Runs[n-1].StartedAt != nil
	}
	return a.StartedAt != nil
}

// CountRestarts returns how often a task was restarted: status.restartCount and the runs of the current
// attempt after its first.
func CountRestarts(s *v1alpha1.TaskStatus) int32 {
	return addRuns(s.RestartCount, s.FindAttempt(s.Attempt))
}

// AddRestarts adds the runs of an attempt after its first to status.restartCount. If a is nil, none.
func AddRestarts(s *v1alpha1.TaskStatus, a *v1alpha1.TaskAttempt) {
	s.RestartCount = addRuns(s.RestartCount, a)
}

func addRuns(restarts int32, a *v1alpha1.TaskAttempt) int32 {
	if a == nil || a.RunCount < 2 {
		return restarts
	}
	return int32(min(int64(restarts)+min(a.RunCount-1, math.MaxInt32), math.MaxInt32))
}
