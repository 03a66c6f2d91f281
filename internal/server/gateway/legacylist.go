package gateway

import (
	"k8s.io/apimachinery/pkg/types"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// A legacy agent forgets ended tasks and runs the tasks of a list that it does not know. A list that
// crosses with the report of an end would run the task again. So its list is made for the one moment
// at which it is needed: when the agent registers, because it may have lost its memory. From the
// first end of a named task on, the list is empty, and no other one is sent.

// sendRegistrationList publishes the list of a robot that has registered, at once. That of a legacy
// agent lacks the tasks that are about to be dispatched: the agent would start them all while
// dispatches arrive.
func (l *taskLists) sendRegistrationList(robotID string) {
	if l.protocolOf(robotID) != robotv1.ProtocolV1 {
		l.sendList(robotID)
		return
	}
	unanswered := l.unanswered(robotID)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stateLocked(robotID).remembered = l.rememberableLocked(robotID, unanswered)
	l.sendListLocked(l.currentConnection(), robotID)
}

// rememberableLocked returns the attempts that a robot has accepted and whose end is not reported.
// A legacy agent does not support secretEnv.
func (l *taskLists) rememberableLocked(robotID string, unanswered map[types.UID]bool) map[types.UID]int32 {
	attempts := map[types.UID]int32{}
	for _, t := range l.objects.tasksOn(robotID) {
		ended, ok := l.endedAttempts[t.UID]
		hasEnded := ok && ended == t.Status.Attempt
		if !hasEnded && !unanswered[t.UID] && !usesSecrets(t) {
			attempts[t.UID] = t.Status.Attempt
		}
	}
	return attempts
}

// isRememberedLocked reports whether the list of a legacy agent may name the current attempt of a task.
// A lost attempt would run again.
func (l *taskLists) isRememberedLocked(robotID string, t *robotv1.Task) bool {
	attempt, ok := l.stateLocked(robotID).remembered[t.UID]
	return ok && attempt == t.Status.Attempt && !isLostAttempt(t)
}

// forgetRememberedLocked empties the list of a legacy agent that has ended a task of it: the agent has
// its memory, or has received the list.
func (l *taskLists) forgetRememberedLocked(end report) {
	c := l.stateLocked(end.robot)
	if attempt, ok := c.remembered[end.uid]; !ok || attempt != end.attempt {
		return
	}
	c.remembered = nil
	l.markDirtyLocked(end.robot, 0)
}
