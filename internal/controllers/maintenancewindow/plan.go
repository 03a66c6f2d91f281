package maintenancewindow

import (
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/robotattr"
	"k8s4r.io/k8s4r/internal/core/window"
	"k8s4r.io/k8s4r/internal/platform/events"
)

// maxMessage bounds the message of the condition Open.
const maxMessage = 1024

// Input is what Plan decides by.
type Input struct {
	Window *v1alpha1.MaintenanceWindow
	// Robots are those of its namespace.
	Robots []v1alpha1.Robot
}

// Actions are what the controller writes after one Plan.
type Actions struct {
	// Status is nil if it is unchanged.
	Status *v1alpha1.MaintenanceWindowStatus
	// Warning is the message of an event if the spec cannot be used since this plan. Empty: no event.
	Warning string
	// RequeueAt is when the window opens or closes. Zero: never.
	RequeueAt time.Time
}

// Plan computes the status of a window.
func Plan(now time.Time, w Input) Actions {
	state := window.StateOf(w.Window, now)
	status := w.Window.Status.DeepCopy()
	status.OpensAt, status.ClosesAt = timeOf(state.OpensAt), timeOf(state.ClosesAt)
	status.Robots, status.ObservedGeneration = w.countRobots(), w.Window.Generation
	open := newCondition(now, w.Window.Generation, state)
	hasChanged := meta.SetStatusCondition(&status.Conditions, open)
	out := Actions{RequeueAt: state.NextChange}
	if !apiequality.Semantic.DeepEqual(status, &w.Window.Status) {
		out.Status = status
	}
	if hasChanged && state.Defect != nil {
		out.Warning = open.Message
	}
	return out
}

func newCondition(now time.Time, generation int64, s window.State) metav1.Condition {
	c := metav1.Condition{
		Type: v1alpha1.ConditionOpen, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonWindowClosed,
		ObservedGeneration: generation, LastTransitionTime: metav1.NewTime(now),
	}
	switch {
	case s.IsOpen:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1alpha1.ReasonWindowOpen, "tasks may be interrupted"
	case s.Defect != nil:
		c.Reason, c.Message = v1alpha1.ReasonInvalidSpec, events.ClipText("the window stays closed: "+s.Defect.Error(), maxMessage)
	case s.OpensAt.IsZero():
		c.Message = "the window never opens: no day matches spec.schedule, or exceptions cover all openings"
	default:
		c.Message = "tasks are not interrupted"
	}
	return c
}

func timeOf(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	at := metav1.NewTime(t.UTC())
	return &at
}

// countRobots returns how many robots the window matches.
func (w *Input) countRobots() int32 {
	n := int32(0)
	for i := range w.Robots {
		if robotattr.HasLabels(robotattr.TaskVisibleLabels(&w.Robots[i]), w.Window.Spec.RobotSelector) {
			n++
		}
	}
	return n
}
