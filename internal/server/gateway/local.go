package gateway

import (
	"fmt"
	"time"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// setLocal sets what people at the robot have decided, after a registration. Local is within limits.
func setLocal(s *robotv1.RobotStatus, local *wire.LocalState) {
	if local == nil {
		local = &wire.LocalState{} // of an agent of an earlier version, too
	}
	s.StoppedTasks, s.Maintenance = nil, nil
	for _, t := range local.StoppedTasks {
		s.StoppedTasks = append(s.StoppedTasks, robotv1.StoppedTask{
			UID: t.UID, Namespace: t.Namespace, Name: t.Name, By: t.By, Since: toSeconds(&t.Since),
		})
	}
	m := local.Maintenance
	if m == nil {
		setProblem(s, robotv1.ConditionMaintenance, false, "", robotv1.ReasonMaintenanceOff, "")
		return
	}
	s.Maintenance = &robotv1.RobotMaintenance{ID: m.ID, By: m.By, Reason: m.Reason, Since: toSeconds(&m.Since)}
	setProblem(s, robotv1.ConditionMaintenance, true, robotv1.ReasonMaintenanceOn, "",
		fmt.Sprintf("In maintenance since %s, by %s: %s", m.Since.UTC().Format(time.RFC3339), m.By, m.Reason))
}

// awaitsAnswer reports whether the robot is due a response: to its registration, or because a user has
// asked to end its maintenance since.
func (w *robotState) awaitsAnswer(r *robotv1.Robot) bool {
	return w.awaitsResponse || w.unlockOf(r) != w.sentUnlock && w.unlockOf(r) != ""
}

// unlockOf returns the ID of the maintenance that the robot has registered, if a user has asked to end it.
// It is empty if none has.
func (w *robotState) unlockOf(r *robotv1.Robot) string {
	if w.local == nil || w.local.Maintenance == nil || w.local.Maintenance.ID != r.Spec.UnlockMaintenance {
		return ""
	}
	return r.Spec.UnlockMaintenance
}
