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
	setHolds(s, local.Holds)
	m := local.Maintenance
	if m == nil {
		setProblem(s, robotv1.ConditionMaintenance, false, "", robotv1.ReasonMaintenanceOff, "")
		return
	}
	s.Maintenance = &robotv1.RobotMaintenance{ID: m.ID, By: m.By, Reason: m.Reason, Since: toSeconds(&m.Since)}
	setProblem(s, robotv1.ConditionMaintenance, true, robotv1.ReasonMaintenanceOn, "",
		fmt.Sprintf("In maintenance since %s, by %s: %s", m.Since.UTC().Format(time.RFC3339), m.By, m.Reason))
}

// setHolds sets the holds of people at the robot, and the condition that describes the first.
func setHolds(s *robotv1.RobotStatus, holds []wire.Hold) {
	s.Holds = nil
	for _, h := range holds {
		s.Holds = append(s.Holds, robotv1.RobotHold{
			ID: h.ID, TaskUID: h.UID, TaskNamespace: h.Namespace, TaskName: h.Name, By: h.By, Reason: h.Reason, Since: toSeconds(&h.Since),
		})
	}
	if len(holds) == 0 {
		setProblem(s, robotv1.ConditionHeld, false, "", robotv1.ReasonReleased, "")
		return
	}
	message := describeHold(holds[0])
	if more := len(holds) - 1; more > 0 {
		message += fmt.Sprintf("; and %d more", more)
	}
	setProblem(s, robotv1.ConditionHeld, true, robotv1.ReasonHeld, "", message)
}

// describeHold returns what is held, since when, by whom and why.
func describeHold(h wire.Hold) string {
	target := "The robot"
	if h.UID != "" {
		target = fmt.Sprintf("Task %s/%s", h.Namespace, h.Name)
	}
	return fmt.Sprintf("%s is held since %s, by %s: %s", target, h.Since.UTC().Format(time.RFC3339), h.By, h.Reason)
}

// unlockRepeat is the time between two messages that ask a robot to end the same maintenance.
const unlockRepeat = 10 * time.Second

// awaitsAnswer reports whether the robot is due a response: to its registration, or because a user has
// asked to end its maintenance. The latter waits for a message of the robot: before, this server may
// have no connection over which to send it. It is repeated until the robot registers the end, because
// a message is lost if the server's connection breaks before the broker has it.
func (w *robotState) awaitsAnswer(now time.Time, r *robotv1.Robot) bool {
	id := unlockOf(r)
	if w.awaitsResponse || id == "" || w.lastSeen.IsZero() {
		return w.awaitsResponse
	}
	return id != w.sentUnlock || now.Sub(w.sentUnlockAt) >= unlockRepeat
}

// unlockOf returns the ID of the robot's maintenance, if a user has asked to end it. It is empty if none
// has. A robot does not register again with another server, so only its status has the ID.
func unlockOf(r *robotv1.Robot) string {
	if m := r.Status.Maintenance; m != nil && m.ID == r.Spec.UnlockMaintenance {
		return m.ID
	}
	return ""
}
