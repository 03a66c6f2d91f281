package gateway

import (
	"testing"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

func evicting(s *robotv1.TaskStatus) {
	s.Reason, s.Message = robotv1.ReasonEvicting, "the robot is drained"
}

func TestApplyReport_EvictedTaskIsNotCanceled(t *testing.T) {
	task := taskIn(lifecycle.TaskRunning, 1, evicting)
	if wantedAction(task) != wire.ActionDelete || isListed(task) {
		t.Errorf("action %q, listed %v", wantedAction(task), isListed(task))
	}
	for _, c := range []struct {
		name       string
		state      string
		wantState  lifecycle.TaskState
		wantReason string
	}{
		{"stopped: the manager decides", wire.ReportFailed, lifecycle.TaskExited, wire.ReasonStopped},
		{"completed before it was stopped: completed", wire.ReportCompleted, lifecycle.TaskCompleted, ""},
		{"a repeated running report does not undo the eviction", wire.ReportRunning, lifecycle.TaskRunning, robotv1.ReasonEvicting},
	} {
		status := report{robot: "r1", uid: task.UID, attempt: 1, Status: wire.Status{State: c.state}}
		if c.state == wire.ReportFailed {
			status.Reason, status.ExitCode = wire.ReasonStopped, 143
		}
		v := applyReport(clock, task, status)
		got := task.Status
		if v.status != nil {
			got = *v.status
		}
		if got.State != string(c.wantState) || got.Reason != c.wantReason {
			t.Errorf("%s: %s %s", c.name, got.State, got.Reason)
		}
	}
}
