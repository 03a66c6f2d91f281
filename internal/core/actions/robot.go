package actions

import (
	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// RobotAction changes whether a robot gets new tasks.
type RobotAction struct {
	done string // as a word
	set  func(*robotv1.RobotSpec)
}

// The actions on robots.
var (
	// Cordon places no new tasks on the robot.
	Cordon = RobotAction{"cordoned", func(s *robotv1.RobotSpec) { s.Unschedulable = true }}
	// Drain also moves its tasks to other robots.
	Drain = RobotAction{"drain requested", func(s *robotv1.RobotSpec) { s.Drain = true }}
	// Uncordon takes both back.
	Uncordon = RobotAction{"uncordoned", func(s *robotv1.RobotSpec) { s.Unschedulable, s.Drain = false, false }}
)

// Apply edits the robot's spec and returns a message.
func (w RobotAction) Apply(r *robotv1.Robot) (string, error) {
	was := r.Spec
	w.set(&r.Spec)
	if was.Unschedulable == r.Spec.Unschedulable && was.Drain == r.Spec.Drain {
		return w.done + " already", nil
	}
	return w.done, nil
}
