package bridge

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// heldForRobot tells whether the Task waits for its robot to be told.
func heldForRobot(t *robotv1.Task) bool {
	return slices.Contains(t.Finalizers, robotv1.FinalizerRobotTold)
}

// letTaskGo takes our finalizer off a Task that is being deleted.
func (b *Bridge) letTaskGo(ctx context.Context, uid types.UID) error {
	t := b.view.task(uid)
	if t == nil || t.DeletionTimestamp == nil || !heldForRobot(t) {
		return nil
	}
	free := t.DeepCopy()
	free.Finalizers = slices.DeleteFunc(free.Finalizers, func(f string) bool { return f == robotv1.FinalizerRobotTold })
	if err := b.client.Update(ctx, free); err != nil {
		return b.notWritten(ctx, t, err, "let it go")
	}
	return nil
}

// notWritten says what follows from a write of a Task that has failed: nothing if it
// is gone, another try on what stands there now if somebody else has written it.
func (b *Bridge) notWritten(ctx context.Context, t *robotv1.Task, err error, act string) error {
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case apierrors.IsConflict(err):
		return b.readTask(ctx, t)
	}
	return fmt.Errorf("task %s/%s: %s: %w", t.Namespace, t.Name, act, err)
}

// readTask looks past the cache. The error asks for another try.
func (b *Bridge) readTask(ctx context.Context, t *robotv1.Task) error {
	var now robotv1.Task
	if err := b.live.Get(ctx, client.ObjectKeyFromObject(t), &now); err != nil {
		return client.IgnoreNotFound(err)
	}
	b.wroteTask(&now)
	return errStale
}
