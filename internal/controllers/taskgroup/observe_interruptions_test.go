package taskgroup

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// A robot of another namespace is shared with that of the job. Its own windows count.
func TestController_WaitsForWindowAndRelease(t *testing.T) {
	w := newWavesWorld(t)
	robot := &v1alpha1.Robot{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "r1", Labels: map[string]string{v1alpha1.ShareLabelPrefix + "ns": "true"}}}
	robot.Status.Holds = []v1alpha1.RobotHold{{ID: "1", TaskUID: "t", By: "alice"}}
	mine, own := newWindow("12"), newWindow("14")
	mine.UID, own.UID, own.Namespace = "mine", "own", "fleet"
	for _, o := range []*v1alpha1.MaintenanceWindow{&mine, &own} {
		if err := w.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Create(t.Context(), robot); err != nil {
		t.Fatal(err)
	}
	if !robot.ServesNamespace("ns") {
		t.Fatal("the robot is not shared")
	}
	w.task(nil)
	w.reconcile() // shows both definitions in the status
	w.reconcile()
	if got := w.task(nil).Spec.EvictAttempt; got != 0 {
		t.Fatal("evicted while the window is closed")
	}
	if err := w.Delete(t.Context(), &own); err != nil {
		t.Fatal(err)
	}
	if got := len(w.groupsOfWindow(t.Context(), &own)); got != 1 {
		t.Errorf("%d groups follow a changed window", got)
	}
	w.reconcile()
	if got := w.task(nil).Spec.EvictAttempt; got != 0 {
		t.Fatal("evicted although it is held")
	}
	released := robot.DeepCopy()
	released.Status.Holds = nil
	if err := w.Update(t.Context(), released); err != nil {
		t.Fatal(err)
	}
	w.robotChanges.Handler(func(context.Context, string, queue) {}).Update(t.Context(), event.UpdateEvent{ObjectOld: robot, ObjectNew: released}, nil)
	w.reconcile()
	if got := w.task(nil).Spec.EvictAttempt; got != 1 {
		t.Error("not evicted after the release")
	}
}
