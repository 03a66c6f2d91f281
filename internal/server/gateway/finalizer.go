package gateway

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// hasRobotFinalizer reports whether the Task waits until its robot is notified.
func hasRobotFinalizer(t *robotv1.Task) bool {
	return slices.Contains(t.Finalizers, robotv1.FinalizerRobotNotified)
}

// removeFinalizer removes our finalizer from a deleted Task. It sends a patch: an update would write the
// spec in our form, and admission would ask whether the server may change what the Task runs.
func (g *Gateway) removeFinalizer(ctx context.Context, uid types.UID) error {
	t := g.objects.task(uid)
	if t == nil || t.DeletionTimestamp == nil || !hasRobotFinalizer(t) {
		return nil
	}
	free := t.DeepCopy()
	free.Finalizers = slices.DeleteFunc(free.Finalizers, func(f string) bool { return f == robotv1.FinalizerRobotNotified })
	if err := g.client.Patch(ctx, free, client.MergeFromWithOptions(t, client.MergeFromWithOptimisticLock{})); err != nil {
		return g.handleWriteError(ctx, t, err, "remove finalizer")
	}
	return nil
}

// handleWriteError returns nil if the Task is deleted, and errStale after a conflict.
func (g *Gateway) handleWriteError(ctx context.Context, t *robotv1.Task, err error, action string) error {
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case apierrors.IsConflict(err):
		return g.rereadTask(ctx, t)
	}
	return fmt.Errorf("task %s/%s: %s: %w", t.Namespace, t.Name, action, err)
}

// rereadTask reads a Task without the cache. It returns errStale to request another try.
func (g *Gateway) rereadTask(ctx context.Context, t *robotv1.Task) error {
	var now robotv1.Task
	if err := g.apiReader.Get(ctx, client.ObjectKeyFromObject(t), &now); err != nil {
		return client.IgnoreNotFound(err)
	}
	g.storeTask(&now)
	return errStale
}
