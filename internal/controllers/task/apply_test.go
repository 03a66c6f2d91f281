package task

import (
	"testing"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/kit"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/testkit/fakeapi"
)

func TestApplyActions_LosesToConcurrentCancel(t *testing.T) {
	for name, in := range map[string]Input{
		"a task that was created bound": newInput(lifecycle.TaskPending, target("r1"), reserved),
		"a task that is bound first":    newInput(lifecycle.TaskPending, reserved),
		"a task that is restarted":      newInput(lifecycle.TaskExited, restartDue(1, 0)),
	} {
		t.Run(name, func(t *testing.T) {
			c := newStoringController(t, in.Task)
			k := client.ObjectKeyFromObject(in.Task)
			read := func() (task v1alpha1.Task) {
				if err := c.Get(t.Context(), k, &task); err != nil {
					t.Fatal(err)
				}
				return task
			}
			seen, meanwhile := read(), read()
			in.Task = &seen
			steps := Plan(noon, in)
			if steps.Status == nil || steps.Status.State != string(lifecycle.TaskDispatching) {
				t.Fatalf("state is not dispatching: %+v", steps)
			}
			meanwhile.Status.State = string(lifecycle.TaskCanceled)
			if err := c.Status().Update(t.Context(), &meanwhile); err != nil {
				t.Fatal(err)
			}
			if err := c.applyActions(t.Context(), &seen, steps); !apierrors.IsConflict(err) {
				t.Errorf("error %v, want a conflict", err)
			}
			if now := read(); now.Status.State != string(lifecycle.TaskCanceled) || now.Spec.TargetRobot != meanwhile.Spec.TargetRobot {
				t.Errorf("%s on %q", now.Status.State, now.Spec.TargetRobot)
			}
		})
	}
}

// newStoringController returns a controller that writes to a store with the Task.
func newStoringController(t *testing.T, task *v1alpha1.Task) *Controller {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	now := func() time.Time { return noon }
	store := fakeapi.NewBuilder(scheme).WithObjects(task).WithStatusSubresource(task).Build()
	return &Controller{Client: store, Now: now, expect: kit.NewExpectations(now, logr.Discard())}
}
