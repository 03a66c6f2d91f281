package scheduler

import (
	"testing"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
)

func TestScheduler_PlacesNoTaskWhereItWasStopped(t *testing.T) {
	s := withRobots("r1")
	g := newGroup("g", 1)
	task := replicaTask(g, 0, lifecycle.TaskPending, "")
	task.UID = "u1"
	s.state.updateJob(runningJob(nil))
	s.state.updateGroup(g)
	s.state.updateTask(task)
	k := key{Namespace: "ns", Name: task.Name}
	r := named(robotIn(lifecycle.RobotOnline), "r1", 9)
	stop := func(uids ...string) {
		r = r.DeepCopy()
		r.Status.StoppedTasks = nil
		for _, uid := range uids {
			r.Status.StoppedTasks = append(r.Status.StoppedTasks, v1alpha1.StoppedTask{UID: uid, By: "alice (uid 1000)"})
		}
		s.state.updateRobot(r)
	}

	stop("u0", "u1")
	s.decide(noon)
	if robot, why := s.Assignment(k); robot != "" || why.String() != "0 of 1 robots: 1: the task was stopped at the robot by alice (uid 1000)" {
		t.Errorf("on %q: %q", robot, why)
	}
	if !hasCapableRobot(s, task) {
		t.Error("no robot is reported as capable, so the task would fail")
	}
	stop("u0")
	if len(s.state.robots.stopped) != 1 {
		t.Errorf("the scheduler remembers %v", s.state.robots.stopped)
	}
	s.decide(noon)
	if robot, why := s.Assignment(k); robot != "r1" {
		t.Errorf("after the restart at the robot: on %q: %q", robot, why)
	}
	stop()
	if len(s.state.robots.stopped) != 0 {
		t.Errorf("the scheduler remembers %v", s.state.robots.stopped)
	}
}
