package task

import (
	"cmp"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/taskstate"
)

// applyActions binds a Task before the status is written, and unbinds it afterwards. So whenever the
// manager crashes, a dispatching Task names its robot, and a Task that a robot may run names no other
// one. Each write is a compare-and-set on the version that the decision was based on.
func (c *Controller) applyActions(ctx context.Context, t *v1alpha1.Task, actions Actions) error {
	if actions.RejectedSignal != "" {
		illegalTransitions.WithLabelValues(t.Status.State, string(actions.RejectedSignal)).Inc()
	}
	if err := c.bindTask(ctx, t, actions.Bind); err != nil {
		return err
	}
	if actions.Status != nil {
		from := lifecycle.TaskState(t.Status.State).OrPending()
		t.Status = *actions.Status
		if err := c.Status().Update(ctx, t); err != nil {
			return fmt.Errorf("update status of task %s: %w", t.Name, err)
		}
		c.expect.RecordWrite(t.UID, t.ResourceVersion)
		if to := lifecycle.TaskState(t.Status.State).OrPending(); to != from {
			transitions.WithLabelValues(string(from), string(to)).Inc()
		}
	}
	if err := c.bindTask(ctx, t, actions.Rebind); err != nil {
		return err
	}
	if err := c.pauseAttempt(ctx, t, actions.PauseAttempt); err != nil {
		return err
	}
	if err := c.withdrawEviction(ctx, t, actions.WithdrawEviction); err != nil {
		return err
	}
	switch {
	case actions.WarningEvent != "":
		c.Recorder.Eventf(t, relatedRobot(t), corev1.EventTypeWarning, cmp.Or(actions.WarningReason, t.Status.Reason), "Run", "%s", actions.WarningEvent)
	case actions.NormalEvent != "":
		c.Recorder.Eventf(t, relatedRobot(t), corev1.EventTypeNormal, cmp.Or(actions.NormalReason, t.Status.Reason), "Run", "%s", actions.NormalEvent)
	}
	for _, why := range actions.Reasons {
		ctrl.LoggerFrom(ctx).V(1).Info(why)
	}
	return nil
}

// relatedRobot returns the robot of the current attempt, as the related object of an event, or nil.
func relatedRobot(t *v1alpha1.Task) runtime.Object {
	k := key{Namespace: t.Namespace, Name: t.CurrentRobot()}
	if a := t.Status.FindAttempt(t.Status.Attempt); a != nil && a.Robot == k.Name {
		k = robotKeyOf(t, a) // in another namespace, if it is shared
	}
	if k.Name == "" {
		return nil
	}
	return &v1alpha1.Robot{ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: k.Name}}
}

// bindTask writes the robot of a Task. If to is nil, it does nothing.
func (c *Controller) bindTask(ctx context.Context, t *v1alpha1.Task, to *RobotBinding) error {
	if to == nil {
		return nil
	}
	to.applyTo(t)
	if err := c.Update(ctx, t); err != nil {
		return fmt.Errorf("bind task %s: %w", t.Name, err)
	}
	c.expect.RecordWrite(t.UID, t.ResourceVersion)
	return nil
}

// pauseAttempt writes which attempt of a range starts no more indexes. If it is 0, it does nothing.
func (c *Controller) pauseAttempt(ctx context.Context, t *v1alpha1.Task, attempt int32) error {
	if attempt == 0 {
		return nil
	}
	t.Spec.Array.PauseAttempt = attempt
	if err := c.Update(ctx, t); err != nil {
		return fmt.Errorf("pause task %s: %w", t.Name, err)
	}
	c.expect.RecordWrite(t.UID, t.ResourceVersion)
	return nil
}

// withdrawEviction removes the requested eviction, if it is to be withdrawn.
func (c *Controller) withdrawEviction(ctx context.Context, t *v1alpha1.Task, isWithdrawn bool) error {
	if !isWithdrawn {
		return nil
	}
	clearEviction(t)
	if err := c.Update(ctx, t); err != nil {
		return fmt.Errorf("withdraw the eviction of task %s: %w", t.Name, err)
	}
	c.expect.RecordWrite(t.UID, t.ResourceVersion)
	return nil
}

func clearEviction(t *v1alpha1.Task) { t.Spec.EvictAttempt, t.Spec.EvictionWaitsFor = 0, "" }

// applyTo sets the robot, its finalizer and its annotation in the object.
func (p *RobotBinding) applyTo(t *v1alpha1.Task) {
	t.Spec.TargetRobot = p.TargetRobot
	controllerutil.RemoveFinalizer(t, v1alpha1.FinalizerRobotNotified)
	if p.NotifiesRobot {
		controllerutil.AddFinalizer(t, v1alpha1.FinalizerRobotNotified)
	}
	delete(t.Annotations, taskstate.AnnotationPlacedBy)
	if p.ChosenByManager && t.Spec.JobName == "" {
		if t.Annotations == nil {
			t.Annotations = map[string]string{}
		}
		t.Annotations[taskstate.AnnotationPlacedBy] = "k8s4r-manager"
	}
}
