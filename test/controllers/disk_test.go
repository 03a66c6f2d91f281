package controllers

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/testkit"
)

func TestScheduler_MeetsDiskAndIsolation(t *testing.T) {
	t.Parallel()
	s := share(t, fleetServer, fleetConfig)
	runCases(t, "needs", s.namespace, []testCase[*space]{
		{"a disk is reserved once, and a sticky replica returns to it", goesBackToItsDisk},
		{"a task waits for the isolation that it requires", waitsForIsolation},
	})
}

func goesBackToItsDisk(s *space) {
	s.robotsOf(v1alpha1.RobotSpec{Capacity: capacity(v1alpha1.CapacityDisk, "150M")}, "disk-a", "disk-b", "disk-c")
	s.plays(succeed)
	g := group("g", 2, "map", "drive") // two tasks of 100 MB each would find no room
	g.EphemeralDisk = &v1alpha1.EphemeralDisk{SizeMB: 100, Sticky: true}
	s.job("j", g)
	s.awaitJob("j", lifecycle.JobCompleted)
	was := map[string]string{}
	for _, t := range s.tasks() {
		was[t.Name] = t.CurrentRobot()
		s.byHand("busy-"+t.Name, t.CurrentRobot()) // any other robot is better
	}
	if was["j-g-0-map"] == was["j-g-1-map"] || was["j-g-0-map"] != was["j-g-0-drive"] {
		s.Errorf("they were on %v", was)
	}
	s.must(s.updateJobSpec("j", requeue()))
	testkit.EventuallyNoError(s, waitTimeout, "all tasks run again on the same robot", func() error {
		for name, robot := range was {
			if t := s.task(name); t.Status.Attempt != 2 || t.CurrentRobot() != robot {
				return fmt.Errorf("%s is on %s in attempt %d, was on %s", name, t.CurrentRobot(), t.Status.Attempt, robot)
			}
		}
		return nil
	})
	s.awaitJob("j", lifecycle.JobCompleted)
}

func waitsForIsolation(s *space) {
	s.robots("open-a", "open-b")
	s.server(succeed)
	g := group("g", 1, "strict")
	g.Tasks[0].Isolation = &v1alpha1.Isolation{Required: []string{"cgroup", "seccomp"}}
	s.job("j", g)
	testkit.EventuallyNoError(s, waitTimeout, "the condition names the missing isolation", func() error {
		var strict v1alpha1.Task
		if err := s.Get(s.Context(), s.key("j-g-0-strict"), &strict); err != nil {
			return err
		}
		c := meta.FindStatusCondition(strict.Status.Conditions, v1alpha1.ConditionPlaced)
		if c == nil || c.Message != "0 of 2 robots: 2: isolation cgroup missing" {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
	s.updateRobotStatus("open-b", func(st *v1alpha1.RobotStatus) {
		st.DeviceInfo = &v1alpha1.DeviceInfo{Isolation: &v1alpha1.Isolations{Available: []string{"cgroup", "seccomp"}}}
	})
	s.awaitJob("j", lifecycle.JobCompleted)
	if robot := s.task("j-g-0-strict").CurrentRobot(); robot != "open-b" {
		s.Errorf("it ran on %s", robot)
	}
}
