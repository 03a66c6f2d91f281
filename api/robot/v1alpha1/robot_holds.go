package v1alpha1

// FindHold returns a hold of the robot that keeps a Task from being interrupted, or nil. If uid is empty, it
// returns one of the whole robot.
func (s *RobotStatus) FindHold(uid string) *RobotHold {
	for i := range s.Holds {
		if h := &s.Holds[i]; h.TaskUID == "" || h.TaskUID == uid {
			return h
		}
	}
	return nil
}

// RefusesInterruptions reports whether the agent of the robot refuses to interrupt a held task, or one whose
// maintenance window has closed.
func (s *RobotStatus) RefusesInterruptions() bool {
	return s.Agent != nil && s.Agent.RefusesInterruptions
}
