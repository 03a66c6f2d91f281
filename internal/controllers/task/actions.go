package task

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/kit"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
)

// Actions is what the controller writes after one Plan, and when it plans again.
type Actions struct {
	// Bind is written first: the robot, and the finalizer that goes with it. Nil: unchanged.
	Bind *RobotBinding
	// Status is written after Bind. Nil: unchanged.
	Status *v1alpha1.TaskStatus
	// Rebind is written after Status, which counts where they differ: it removes the robot that
	// the Task leaves, or names the one that it returns to. Nil: unchanged.
	Rebind *RobotBinding
	// PauseAttempt is written after Status: the number of the attempt of a range that starts no more
	// indexes. Zero: unchanged.
	PauseAttempt int32
	// WithdrawEviction is true if the requested eviction is removed from the spec, after Status.
	WithdrawEviction bool
	// ReliesOnSelfStop is true if the decision assumes that an offline robot has stopped an
	// attempt by itself. The controller then reads the robots past the cache and plans again.
	ReliesOnSelfStop bool
	// RequeueAt is when to plan again. Zero: wait for the next watch event.
	RequeueAt time.Time
	// WarningEvent is the message of a warning event. Empty: none.
	WarningEvent string
	// WarningReason is the reason of the warning event. If empty, that of the status.
	WarningReason string
	// NormalEvent is the message of a normal event. Empty: none. Starts and ends have none,
	// because each event costs a write, and a job may have ten thousand tasks.
	NormalEvent string
	// NormalReason is the reason of the normal event. If empty, that of the status.
	NormalReason string
	// RejectedSignal is a signal that the state did not accept, for the metric. Empty: none.
	RejectedSignal lifecycle.TaskSignal
	// Reasons has one line for each decision, for the log and the golden stories.
	Reasons []string
}

// RobotBinding is the robot to write into a Task. The zero value removes the robot.
type RobotBinding struct {
	// TargetRobot is the new spec.targetRobot.
	TargetRobot string
	// ChosenByManager lets the manager choose another robot later.
	ChosenByManager bool
	// NotifiesRobot adds the finalizer that delays the deletion of the Task until its robot was
	// notified. Legacy agents need it.
	NotifiesRobot bool
}

// draft collects the actions of one decision. Its status is a copy of the Task's, and becomes
// part of the actions with the first change.
type draft struct {
	now     time.Time
	task    *v1alpha1.Task
	state   lifecycle.TaskState
	status  *v1alpha1.TaskStatus
	actions Actions
}

func newDraft(now time.Time, t *v1alpha1.Task) *draft {
	return &draft{now: now, task: t, state: lifecycle.TaskState(t.Status.State).OrPending(), status: t.Status.DeepCopy()}
}

// sendSignal moves the task to the state that follows in the state table, and reports whether
// its state accepts the signal. A rejected signal changes nothing and is counted.
func (d *draft) sendSignal(g lifecycle.TaskSignal, reason, format string, args ...any) bool {
	to, ok := lifecycle.StepTask(d.state, g)
	if !ok {
		d.actions.RejectedSignal = g
		return false
	}
	message := fmt.Sprintf(format, args...)
	d.addReason(fmt.Sprintf("%s -> %s: %s", d.state, to, message))
	d.state = to
	d.status.State, d.status.Reason, d.status.Message = string(to), reason, message
	d.writeStatus()
	return true
}

// writeStatus adds the status to the actions.
func (d *draft) writeStatus() { d.actions.Status = d.status }

func (d *draft) addReason(reason string) { d.actions.Reasons = append(d.actions.Reasons, reason) }

// requeueAt makes the controller plan again at this time or earlier.
func (d *draft) requeueAt(at time.Time) { kit.SetEarliest(&d.actions.RequeueAt, at) }

// setCondition sets a condition. Its transition time changes only with its status.
func (d *draft) setCondition(kind string, is metav1.ConditionStatus, reason, message string) {
	changed := meta.SetStatusCondition(&d.status.Conditions, metav1.Condition{
		Type: kind, Status: is, Reason: reason, Message: message,
		ObservedGeneration: d.task.Generation, LastTransitionTime: metav1.NewTime(d.now),
	})
	if kind == v1alpha1.ConditionPlaced && d.status.Placement != nil { // it explains the earlier condition
		d.status.Placement, changed = nil, true
	}
	if changed {
		d.writeStatus()
	}
}

// restartCondition sets a condition with the current time as its transition time, even if its
// status stays the same. Otherwise a wait would be measured from an earlier one and end at once.
func (d *draft) restartCondition(kind string, is metav1.ConditionStatus, reason, message string) {
	meta.RemoveStatusCondition(&d.status.Conditions, kind)
	d.setCondition(kind, is, reason, message)
}

// currentAttempt returns the entry of the current attempt, or nil.
func (d *draft) currentAttempt() *v1alpha1.TaskAttempt {
	i := slices.IndexFunc(d.status.Attempts, func(a v1alpha1.TaskAttempt) bool { return a.Attempt == d.status.Attempt })
	if i < 0 {
		return nil
	}
	return &d.status.Attempts[i]
}
