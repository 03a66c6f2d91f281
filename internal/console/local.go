package console

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// stoppedTask is a task that a person at the robot has stopped. It does not run there until it is
// restarted there.
type stoppedTask struct {
	UID       string `json:"uid"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	// By is the user of the robot.
	By string `json:"by,omitempty"`
	// Since is by the robot's clock.
	Since *metav1.MicroTime `json:"since,omitempty"`
}

func listStoppedTasks(r *v1alpha1.Robot) (out []stoppedTask) {
	for i := range r.Status.StoppedTasks {
		t := &r.Status.StoppedTasks[i]
		one := stoppedTask{UID: t.UID, Namespace: t.Namespace, Name: t.Name, By: t.By}
		if t.Since != nil {
			one.Since = toMicroTime(t.Since.Time)
		}
		out = append(out, one)
	}
	return out
}

// describeHolds returns a sentence about the holds of the robot, unless it is in known.
func describeHolds(r *v1alpha1.Robot, known []string) (out []string) {
	c := meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionHeld)
	if c == nil || c.Status != metav1.ConditionTrue {
		return nil
	}
	if text := c.Reason + ": " + c.Message; !slices.Contains(known, text) {
		out = append(out, text)
	}
	return out
}

// describeMaintenance returns sentences about the robot's maintenance, without those that are in known.
func describeMaintenance(r *v1alpha1.Robot, known []string) (out []string) {
	c := meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionMaintenance)
	if c == nil || c.Status != metav1.ConditionTrue {
		return nil
	}
	if text := c.Reason + ": " + c.Message; !slices.Contains(known, text) {
		out = append(out, text)
	}
	if m := r.Status.Maintenance; m != nil && m.ID == r.Spec.UnlockMaintenance {
		out = append(out, "A user has requested its end: it ends when the robot receives that")
	}
	return out
}
