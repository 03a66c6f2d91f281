package wish

import (
	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// Robot is what a robot may be asked about new tasks.
type Robot struct {
	done string // as a word
	set  func(*robotv1.RobotSpec)
}

// The wishes for a robot.
var (
	// Cordon keeps new tasks away.
	Cordon = Robot{"cordoned", func(s *robotv1.RobotSpec) { s.Unschedulable = true }}
	// Drain also lets those that it has run elsewhere.
	Drain = Robot{"drain requested", func(s *robotv1.RobotSpec) { s.Drain = true }}
	// Uncordon takes both back.
	Uncordon = Robot{"uncordoned", func(s *robotv1.RobotSpec) { s.Unschedulable, s.Drain = false, false }}
)

// Judge writes the wish into the robot's spec, and says what became of it.
func (w Robot) Judge(r *robotv1.Robot) (string, error) {
	was := r.Spec
	w.set(&r.Spec)
	if was.Unschedulable == r.Spec.Unschedulable && was.Drain == r.Spec.Drain {
		return w.done + " already", nil
	}
	return w.done, nil
}
