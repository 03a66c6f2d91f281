package task

import (
	"strings"
	"testing"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
)

func notShared(w *Input) { w.Robot.Namespace = "fleet" }

func shared(w *Input) {
	notShared(w)
	w.Robot.Labels = map[string]string{v1alpha1.ShareLabelPrefix + "ns": "true"}
}

func TestPlan_FollowsSharedRobot(t *testing.T) {
	for _, c := range []struct {
		name        string
		in          Input
		want        lifecycle.TaskState // empty: it stays as it is
		wantMessage string              // a part of it
	}{
		{"starts where it is shared", newInput(lifecycle.TaskPending, reserved, shared), lifecycle.TaskDispatching, "Dispatching to r1"},
		{"does not start where it is no longer shared", newInput(lifecycle.TaskPending, reserved, notShared), "", ""},
		{"goes on when it is no longer shared", newInput(lifecycle.TaskRunning, notShared), "", ""},
		{"is restarted where it is shared", newInput(lifecycle.TaskExited, restartDue(3, 0), shared), lifecycle.TaskDispatching, "again"},
		{"is not restarted when it is no longer shared, and its robot does not count as failed",
			newInput(lifecycle.TaskExited, restarts(3, 0, 0), notShared), lifecycle.TaskPending, "Interrupted on r1: the robot is no longer shared with namespace ns"},
		{"is lost with it as with any other", newInput(lifecycle.TaskRunning, notShared, phase(lifecycle.RobotOffline)), lifecycle.TaskUnknown, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Plan(noon, c.in)
			var state lifecycle.TaskState
			message := ""
			if got.Status != nil {
				state, message = lifecycle.TaskState(got.Status.State), got.Status.Message
			}
			if state != c.want || !strings.Contains(message, c.wantMessage) {
				t.Errorf("%s (%s), want %s (%s)", state, message, c.want, c.wantMessage)
			}
			if state == lifecycle.TaskPending && len(got.Status.FailedRobots) > 0 {
				t.Errorf("failed robots %v", got.Status.FailedRobots)
			}
		})
	}
}
