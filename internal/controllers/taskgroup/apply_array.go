package taskgroup

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/array"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/protocol/indexset"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// buildIndexTasks returns the Tasks of single indexes of the array. One whose range was deleted
// meanwhile is left out: the range will run its index again.
func (c *Controller) buildIndexTasks(ctx context.Context, in taskBuilder, indexes []IndexTask) (tasks []*v1alpha1.Task, err error) {
	g := in.group
	for _, x := range indexes {
		var failure *v1alpha1.IndexFailure
		if x.FailedIn != "" {
			var r v1alpha1.Task
			err := c.Get(ctx, client.ObjectKey{Namespace: g.Namespace, Name: x.FailedIn}, &r, client.UnsafeDisableDeepCopy)
			if apierrors.IsNotFound(err) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("get task %s: %w", x.FailedIn, err)
			}
			failure = describeFailure(&r, x.Index)
		}
		var name string
		c.counts.withGroup(g.UID, func(m *groupTasks) { name = indexTaskName(g, x.Index, g.Spec.Tasks[0].Name, m.takenNames) })
		tasks = append(tasks, in.buildIndexTask(name, x.Index, failure))
	}
	return tasks, nil
}

// changeRange writes how indexes of a range have ended, and then deletes the Tasks that showed it before.
func (c *Controller) changeRange(ctx context.Context, w *Input, t *v1alpha1.Task, change RangeChange) error {
	succeeded, failed := array.Ended(t)
	runAgain := change.RunAgain
	if lifecycle.TaskState(t.Status.State).IsActive() {
		runAgain = indexset.Set{}
	}
	left := failed.Minus(change.Succeeded).Minus(runAgain)
	if left.Len() < failed.Len() {
		array.SetEnds(t.Status.Array, succeeded.Union(failed.Intersect(change.Succeeded)), left)
		if err := c.keepOutputs(ctx, t, change.Delete); err != nil {
			return err
		}
		if err := c.Status().Update(ctx, t); err != nil {
			return err
		}
		c.counts.withGroup(w.Group.UID, func(m *groupTasks) { m.recordTask(c.Now(), t) })
	}
	for _, name := range change.Delete {
		if err := c.updateOwnTask(ctx, w.Group, name, func(ctx context.Context, t *v1alpha1.Task) error { return c.deleteFolded(ctx, w, t) }); err != nil {
			return err
		}
	}
	return nil
}

// keepOutputs adds the outputs of Tasks of single indexes, which are about to be deleted, to their range.
func (c *Controller) keepOutputs(ctx context.Context, t *v1alpha1.Task, names []string) error {
	for _, name := range names {
		var own v1alpha1.Task
		err := c.Get(ctx, client.ObjectKey{Namespace: t.Namespace, Name: name}, &own, client.UnsafeDisableDeepCopy)
		if err != nil {
			return err
		}
		for output, value := range own.Status.Outputs {
			if _, has := t.Status.Outputs[output]; !has && len(t.Status.Outputs) >= wire.MaxOutputs {
				continue
			}
			if t.Status.Outputs == nil {
				t.Status.Outputs = map[string]string{}
			}
			t.Status.Outputs[output] = value
		}
	}
	return nil
}

// deleteFolded deletes the Task of an index that its range shows as succeeded, unless it was requeued
// meanwhile.
func (c *Controller) deleteFolded(ctx context.Context, w *Input, t *v1alpha1.Task) error {
	if t.Status.State != string(lifecycle.TaskCompleted) {
		return nil
	}
	return c.deleteTask(ctx, w, t)
}
