package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/testkit"
	"k8s4r.io/k8s4r/internal/testkit/simrobot"
)

// TestRobot_ThatDoesNotAnswerLosesItsTasks shows that a robot that is connected and sends
// heartbeats, but answers no dispatch, neither keeps its tasks nor gets others.
func TestRobot_ThatDoesNotAnswerLosesItsTasks(t *testing.T) {
	t.Parallel()
	s := start(t, "--robots", "0", "--offline-after", "10s")
	silent := s.simulateRobot(simrobot.Config{RobotID: "silent", Heartbeat: time.Second, IsSilent: true})
	job := jobOf("moves", 1, shell("work", "true"))
	job.Spec.Disconnect = &v1alpha1.Disconnect{LostAfter: span(time.Second), DispatchTimeout: span(10 * time.Second)}
	s.create(job)
	task := &v1alpha1.Task{}
	testkit.EventuallyNoError(t, time.Minute, "the task has left the robot, and waits for another", func() error {
		if err := s.Get(context.Background(), client.ObjectKey{Namespace: "default", Name: "moves-main-0-work"}, task); err != nil {
			return err
		}
		c := meta.FindStatusCondition(task.Status.Conditions, v1alpha1.ConditionPlaced)
		if task.Status.Attempt != 1 || task.Status.State != "pending" || c == nil || c.Message != "0 of 1 robots: 1: does not answer dispatches" {
			return fmt.Errorf("status %+v", task.Status)
		}
		return nil
	})
	if task.Status.Reason != v1alpha1.ReasonDispatchTimeout || task.Status.LostAttempt != 0 {
		t.Errorf("reason %s, lost attempt %d; want DispatchTimeout and none", task.Status.Reason, task.Status.LostAttempt)
	}
	good := s.simulateRobot(simrobot.Config{RobotID: "good", Heartbeat: time.Second})
	s.create(jobOf("next", 2, shell("work", "true")))
	for _, name := range []string{"moves", "next"} {
		s.awaitJob(name, "completed", time.Minute)
	}
	if n := len(good.StartCounts()); n != 3 || len(silent.StartCounts()) != 0 {
		t.Errorf("started %d tasks on the robot that answers and %d on the other, want 3 and 0", n, len(silent.StartCounts()))
	}
	testkit.EventuallyNoError(t, time.Minute, "the robot shows why", func() error {
		robot := &v1alpha1.Robot{}
		if err := s.Get(context.Background(), client.ObjectKey{Namespace: "default", Name: "silent"}, robot); err != nil {
			return err
		}
		if c := meta.FindStatusCondition(robot.Status.Conditions, v1alpha1.ConditionResponsive); c == nil || c.Reason != v1alpha1.ReasonDispatchUnanswered {
			return fmt.Errorf("conditions %+v", robot.Status.Conditions)
		}
		return nil
	})
}
