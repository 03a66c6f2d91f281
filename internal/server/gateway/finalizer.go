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

// removeFinalizer removes our finalizer from a deleted Task.
func (b *Gateway) removeFinalizer(ctx context.Context, uid types.UID) error {
	t := b.objects.task(uid)
	if t == nil || t.DeletionTimestamp == nil || !hasRobotFinalizer(t) {
		return nil
	}
	free := t.DeepCopy()
	free.Finalizers = slices.DeleteFunc(free.Finalizers, func(f string) bool { return f == robotv1.FinalizerRobotNotified })
	if err := b.client.Update(ctx, free); err != nil {
		return b.handleWriteError(ctx, t, err, "remove finalizer")
	}
	return nil
}

// handleWriteError returns nil if the Task is deleted, and errStale after a conflict.
func (b *Gateway) handleWriteError(ctx context.Context, t *robotv1.Task, err error, action string) error {
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case apierrors.IsConflict(err):
		return b.rereadTask(ctx, t)
	}
	return fmt.Errorf("task %s/%s: %s: %w", t.Namespace, t.Name, action, err)
}

// rereadTask reads a Task without the cache. It returns errStale to request another try.
func (b *Gateway) rereadTask(ctx context.Context, t *robotv1.Task) error {
	var now robotv1.Task
	if err := b.apiReader.Get(ctx, client.ObjectKeyFromObject(t), &now); err != nil {
		return client.IgnoreNotFound(err)
	}
	b.storeTask(&now)
	return errStale
}
