package actions

import (
	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// RobotAction changes whether a robot gets new tasks.
type RobotAction struct {
	// done and unchanged are the messages after a change, and if there was nothing to change.
	done, unchanged string
	set             func(*robotv1.RobotSpec)
}

// The actions on robots.
var (
	// Cordon places no new tasks on the robot.
	Cordon = RobotAction{"cordoned", "already cordoned", func(s *robotv1.RobotSpec) { s.Unschedulable = true }}
	// Drain also moves its tasks to other robots.
	Drain = RobotAction{"drain requested", "drain already requested", func(s *robotv1.RobotSpec) { s.Drain = true }}
	// Uncordon reverts Cordon and Drain.
	Uncordon = RobotAction{"uncordoned", "already uncordoned", func(s *robotv1.RobotSpec) { s.Unschedulable, s.Drain = false, false }}
)

// Apply edits the robot's spec and returns a message.
func (a RobotAction) Apply(r *robotv1.Robot) (string, error) {
	was := r.Spec
	a.set(&r.Spec)
	if was.Unschedulable == r.Spec.Unschedulable && was.Drain == r.Spec.Drain {
		return a.unchanged, nil
	}
	return a.done, nil
}

// UnlockMaintenance edits the robot's spec so that the robot ends its present maintenance, and returns a
// message.
func UnlockMaintenance(r *robotv1.Robot) (string, error) {
	m := r.Status.Maintenance
	switch {
	case m == nil:
		return "not in maintenance", nil
	case r.Spec.UnlockMaintenance == m.ID:
		return "unlock already requested", nil
	}
	r.Spec.UnlockMaintenance = m.ID
	return "unlock requested; the maintenance by " + m.By + " ends when the robot receives that", nil
}
