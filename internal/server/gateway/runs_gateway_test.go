package gateway

import (
	"testing"
	"time"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/testkit/simrobot"
)

// TestGateway_RecordsRuns lets a robot restart a task until its restartPolicy allows no more.
func TestGateway_RecordsRuns(t *testing.T) {
	s := start(t)
	s.approveRobots()
	r := s.startRobot(simrobot.Config{RobotID: "r1", RestartsTasks: true, Exit: func(string, int32) int32 { return 3 }})
	defer r.Stop()
	for name, delay := range map[string]time.Duration{"waiting": time.Hour, "ended": time.Second} {
		task := newBoundTask(name, "r1")
		task.Spec.RestartPolicy = &robotv1.RestartPolicy{Attempts: 1, Delay: robotv1.NewDuration(delay)}
		s.createTask(task)
	}
	eventually(t, "a task waits for its second run", func() bool {
		a := s.task("waiting").Status.FindAttempt(1)
		return s.task("waiting").Status.Reason == wire.ReasonRestarting && a.RunCount == 1 && a.NextRunAt != nil && a.Runs == nil
	})
	eventually(t, "a task has exited after its second run", func() bool { return s.state("ended") == lifecycle.TaskExited })
	eventually(t, "every report is acknowledged", func() bool { return r.UnacknowledgedCount() == 0 })
	a := s.task("ended").Status.FindAttempt(1)
	if a.RunCount != 2 || len(a.Runs) != 2 || a.NextRunAt != nil || *a.Runs[0].ExitCode != 3 || *a.ExitCode != 3 || !a.StartedAt.Equal(a.Runs[0].StartedAt) {
		t.Errorf("%+v", a)
	}
	eventually(t, "the Robot shows what its agent does", func() bool { return s.robot("r1").Status.Agent.RestartsTasks })
}
