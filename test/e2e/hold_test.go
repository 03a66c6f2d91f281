package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/testkit"
)

// TestRobot_IsHeld follows a person beside a robot who does not want its task to be interrupted, as
// docs/how-to/work-at-a-robot-without-a-network.md describes.
func TestRobot_IsHeld(t *testing.T) {
	t.Parallel()
	s := start(t, "--robots", "0", "--without", "node,console")
	s.robotWith("r1", nil)
	r1 := agent(t, s, "r1", "--heartbeat", "1s")
	s.awaitRobot("r1", "Online", 20*time.Second)
	starts := s.file("starts")
	job := on("r1", jobOf("scan", 1, shell("work", "echo first >> "+starts+"; exec sleep 600")))
	job.Spec.Type = v1alpha1.JobTypeService
	s.create(job)
	const name = "scan-main-0-work"
	s.awaitTask(name, "running", 20*time.Second)

	if out := s.mustAtRobot("hold", name, "--reason", "a scan of the hall"); !strings.Contains(out, "default/"+name+": held") {
		t.Errorf("hold prints %s", out)
	}
	s.awaitHolds(1, "Task default/"+name+" is held since ")
	if out := s.mustAtRobot("tasks"); !strings.Contains(out, "Hold of default/"+name+", since ") || !strings.Contains(out, "by root (uid 0): a scan of the hall") {
		t.Errorf("tasks prints %s", out)
	}
	s.awaitOutput(`robot r1 has a hold: Task default/`+name+` is held since \S+, by root \(uid 0\): a scan of the hall`, "status")

	s.changeScript("scan", starts)
	s.awaitHeldReplica("scan-main")
	r1.Kill()
	agent(t, s, "r1", "--heartbeat", "1s")
	s.awaitAtRobot(`(?m)^Hold of default/`+name, "tasks")
	s.awaitRobot("r1", "Online", 20*time.Second)
	if a := s.task(name).Status; a.Attempt != 1 || a.State != "running" {
		t.Errorf("the held task is %s in attempt %d", a.State, a.Attempt)
	}
	s.awaitHolds(1, "Task default/"+name)

	s.mustAtRobot("release", name)
	s.awaitHolds(0, "")
	testkit.EventuallyNoError(t, 90*time.Second, "the changed task runs after the release", func() error {
		task := s.task(name)
		if task.Status.Attempt != 2 || task.Status.State != "running" || len(task.Status.FailedRobots) > 0 {
			return fmt.Errorf("it is %s in attempt %d: %s", task.Status.State, task.Status.Attempt, task.Status.Message)
		}
		return nil
	})

	s.mustAtRobot("hold", "--reason", "a visit")
	s.awaitHolds(1, "The robot is held since ")
	s.cli("job", "cancel", "scan")
	s.awaitJob("scan", "canceled", 20*time.Second)
	s.awaitHolds(1, "The robot is held since ")
	s.mustAtRobot("release", "--all")
	s.awaitHolds(0, "")
}

// awaitHolds blocks until the robot r1 has this many holds, and a condition with a message that begins so.
func (s *system) awaitHolds(count int, message string) {
	s.t.Helper()
	testkit.EventuallyNoError(s.t, 20*time.Second, "the holds of the robot", func() error {
		status := s.robot("r1").Status
		c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionHeld)
		if len(status.Holds) != count || c == nil || (c.Status == "True") != (count > 0) || !strings.HasPrefix(c.Message, message) {
			return fmt.Errorf("holds %+v, condition %+v", status.Holds, c)
		}
		return nil
	})
}

// awaitHeldReplica blocks until a group reports that its replica waits for a hold.
func (s *system) awaitHeldReplica(group string) {
	s.t.Helper()
	testkit.EventuallyNoError(s.t, time.Minute, "the group waits for the hold", func() error {
		var g v1alpha1.TaskGroup
		if err := s.Get(s.t.Context(), types.NamespacedName{Namespace: "default", Name: group}, &g); err != nil {
			return err
		}
		c := meta.FindStatusCondition(g.Status.Conditions, v1alpha1.ConditionRolledOut)
		if c == nil || !strings.Contains(c.Message, "replicas held at their robots: 1") {
			return fmt.Errorf("condition %+v", c)
		}
		return nil
	})
}
