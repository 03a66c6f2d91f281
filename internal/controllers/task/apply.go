package task

import (
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

// applyActions writes the robot that a Task goes to before the status, and the robot that it leaves
// after it. So a dispatching Task always names its robot, and a Task that a robot may run never
// names another one, whenever the manager crashes. Each write is a compare-and-set on what the
// decision was based on.
func (c *Controller) applyActions(ctx context.Context, t *v1alpha1.Task, steps Actions) error {
	if steps.RejectedSignal != "" {
		illegalEdges.WithLabelValues(t.Status.State, string(steps.RejectedSignal)).Inc()
	}
	if err := c.bindTask(ctx, t, steps.Bind); err != nil {
		return err
	}
	if steps.Status != nil {
		from := lifecycle.TaskState(t.Status.State).OrPending()
		t.Status = *steps.Status
		if err := c.Status().Update(ctx, t); err != nil {
			return fmt.Errorf("update status of task %s: %w", t.Name, err)
		}
		c.expect.RecordWrite(t.UID, t.ResourceVersion)
		if to := lifecycle.TaskState(t.Status.State).OrPending(); to != from {
			transitions.WithLabelValues(string(from), string(to)).Inc()
		}
	}
	if err := c.bindTask(ctx, t, steps.Rebind); err != nil {
		return err
	}
	switch {
	case steps.WarningEvent != "":
		c.Recorder.Eventf(t, relatedRobot(t), corev1.EventTypeWarning, t.Status.Reason, "Run", "%s", steps.WarningEvent)
	case steps.NormalEvent != "":
		c.Recorder.Eventf(t, relatedRobot(t), corev1.EventTypeNormal, t.Status.Reason, "Run", "%s", steps.NormalEvent)
	}
	for _, why := range steps.Reasons {
		ctrl.LoggerFrom(ctx).V(1).Info(why)
	}
	return nil
}

// relatedRobot returns the robot of an event's attempt.
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

// bindTask writes where a Task is to run. Nil: unchanged.
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

// applyTo writes the binding into the object.
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
