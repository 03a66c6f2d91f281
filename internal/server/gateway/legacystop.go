package gateway

import (
	"container/heap"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// A legacy agent stops nothing because of a list, and mostly does not report that it has stopped a task.
// So a task that was deleted, or has ended, while such a robot was out of contact is deleted there as soon
// as the robot is connected. After the time that it has to stop, the robot's next message makes the server
// release the Task, or record the end in its place.

// wantedAction returns the action that a Task requests of its robot, with regard to the robot's protocol.
func (d *downlink) wantedAction(t *robotv1.Task) string {
	if d.awaitsLegacyStop(t) {
		return wire.ActionDelete
	}
	return wantedAction(t)
}

// awaitsLegacyStop reports whether a task has ended without the legacy agent that has its last attempt.
func (d *downlink) awaitsLegacyStop(t *robotv1.Task) bool {
	if t == nil || !lifecycle.TaskState(t.Status.State).IsTerminal() {
		return false
	}
	isLast := func(a robotv1.TaskAttempt) bool { return a.Attempt == t.Status.Attempt }
	return slices.ContainsFunc(canceledAttempts(t), isLast) && d.protocolOf(t.CurrentRobot()) == robotv1.ProtocolV1
}

// awaitsLegacyDelete reports whether a deleted Task waits until a legacy agent has stopped it.
func (d *downlink) awaitsLegacyDelete(t *robotv1.Task, i item) bool {
	return t.DeletionTimestamp != nil && hasRobotFinalizer(t) && d.protocolOf(i.robot) == robotv1.ProtocolV1
}

// onLegacyHeartbeat checks the stops at a legacy agent that only waited for its next message.
func (d *downlink) onLegacyHeartbeat(robotID string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, t := range d.objects.tasksOn(robotID) {
		d.checkStopLocked(t.UID)
	}
	for _, a := range d.objects.canceledOn(robotID) {
		d.checkStopLocked(types.UID(a.UID))
	}
}

func (d *downlink) checkStopLocked(uid types.UID) {
	if i := d.items[uid]; i != nil && i.index >= 0 && i.action == wire.ActionDelete && d.hadTimeToStop(*i) {
		i.due = d.now()
		heap.Fix(&d.due, i.index)
		d.wakeUp()
	}
}

// onProtocolKnown schedules what depends on the protocol of a robot that has not registered with this
// server.
func (d *downlink) onProtocolKnown(robotID string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.scheduleStopsLocked(robotID)
}

// scheduleStopsLocked schedules the stops of the ended tasks of a legacy agent, from the start. A Task
// that was delivered before its Robot has none yet: the protocol was not known.
func (d *downlink) scheduleStopsLocked(robotID string) {
	for _, a := range d.objects.canceledOn(robotID) {
		uid := types.UID(a.UID)
		d.scheduleTaskLocked(uid)
		if i := d.items[uid]; i != nil && d.awaitsLegacyStop(d.objects.task(uid)) {
			d.resendLocked(i, d.now())
		}
	}
}

// sendLegacyStop sends the delete of such a task to a connected robot. Its end is recorded when the robot
// has answered, or has had enough time and has sent any message since.
func (d *downlink) sendLegacyStop(t *robotv1.Task, i item) {
	switch {
	case i.due.IsZero(), d.isConnected(i.robot) && d.hadTimeToStop(i):
		d.addReport(report{robot: i.robot, uid: t.UID, attempt: t.Status.Attempt, legacy: true, Status: wire.Status{
			State: wire.ReportFailed, ExitCode: exitCodeUnknown, Reason: wire.ReasonStopped, UpdatedAt: d.now(),
		}})
	case d.isConnected(i.robot):
		d.sendItem(t, i)
	default:
		d.forgetTries(i)
	}
}

// hadTimeToStop reports whether a robot that was sent a stop is still there after the time that it has to
// stop. A robot that has left silently is connected for a while, but sends nothing.
func (d *downlink) hadTimeToStop(i item) bool {
	return i.tries > 0 && !d.lastSeen(i.robot).Before(i.firstSent.Add(d.legacyGrace))
}

// isConnected reports whether the server receives messages of a robot.
func (d *downlink) isConnected(robotID string) bool {
	r := d.objects.robot(robotID)
	return r != nil && meta.IsStatusConditionTrue(r.Status.Conditions, robotv1.ConditionConnected)
}

// forgetTries makes the time for the answer start when the item is sent next.
func (d *downlink) forgetTries(was item) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if i := d.items[was.uid]; i != nil && i.isSameDispatch(&was) {
		i.tries, i.firstSent = 0, time.Time{}
	}
}
