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
	"k8s4r.io/k8s4r/internal/lifecycle"
)

// apply writes the robot that a Task goes to before the status, and the one that
// it leaves after it: a Task that says dispatching names its robot, and one that
// a robot may run never says another, whenever we crash. Each write is a
// compare-and-set on what the decision saw.
func (c *Controller) apply(ctx context.Context, t *v1alpha1.Task, steps Steps) error {
	if steps.Illegal != "" {
		illegalEdges.WithLabelValues(t.Status.State, string(steps.Illegal)).Inc()
	}
	if err := c.bind(ctx, t, steps.Bind); err != nil {
		return err
	}
	if steps.Status != nil {
		from := lifecycle.TaskState(t.Status.State).Normal()
		t.Status = *steps.Status
		if err := c.Status().Update(ctx, t); err != nil {
			return fmt.Errorf("update status of task %s: %w", t.Name, err)
		}
		c.expect.Wrote(t.UID, t.ResourceVersion)
		if to := lifecycle.TaskState(t.Status.State).Normal(); to != from {
			transitions.WithLabelValues(string(from), string(to)).Inc()
		}
	}
	if err := c.bind(ctx, t, steps.Rebind); err != nil {
		return err
	}
	switch {
	case steps.Warning != "":
		c.Recorder.Eventf(t, related(t), corev1.EventTypeWarning, t.Status.Reason, "Run", "%s", steps.Warning)
	case steps.Note != "":
		c.Recorder.Eventf(t, related(t), corev1.EventTypeNormal, t.Status.Reason, "Run", "%s", steps.Note)
	}
	for _, why := range steps.Why {
		ctrl.LoggerFrom(ctx).V(1).Info(why)
	}
	return nil
}

// related is the robot of the attempt that an event about the Task is about.
func related(t *v1alpha1.Task) runtime.Object {
	k := key{Namespace: t.Namespace, Name: t.RobotOfAttempt()}
	if a := t.Status.Entry(t.Status.Attempt); a != nil && a.Robot == k.Name {
		k = robotOf(t, a) // in another namespace, if it is shared
	}
	if k.Name == "" {
		return nil
	}
	return &v1alpha1.Robot{ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: k.Name}}
}

// bind writes where a Task is to run. Nil: it stays as it is.
func (c *Controller) bind(ctx context.Context, t *v1alpha1.Task, to *Placing) error {
	if to == nil {
		return nil
	}
	to.write(t)
	if err := c.Update(ctx, t); err != nil {
		return fmt.Errorf("bind task %s: %w", t.Name, err)
	}
	c.expect.Wrote(t.UID, t.ResourceVersion)
	return nil
}

// write puts the placing into the object.
func (p *Placing) write(t *v1alpha1.Task) {
	t.Spec.TargetRobot = p.TargetRobot
	controllerutil.RemoveFinalizer(t, v1alpha1.FinalizerRobotTold)
	if p.Told {
		controllerutil.AddFinalizer(t, v1alpha1.FinalizerRobotTold)
	}
	delete(t.Annotations, AnnotationPlacedBy)
	if p.ByUs && t.Spec.JobName == "" {
		if t.Annotations == nil {
			t.Annotations = map[string]string{}
		}
		t.Annotations[AnnotationPlacedBy] = "k8s4r-manager"
	}
}
