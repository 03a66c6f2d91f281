package taskgroup

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/lifecycle"
)

// change writes what was decided about Tasks that exist. Each write holds only
// for the Task as it was decided on: one that went on meanwhile is looked at
// anew, when the watch brings it.
func (c *Controller) change(ctx context.Context, w *World, steps Steps) error {
	in := w.mould()
	var writes []func() error
	do := func(name string, write func(context.Context, *v1alpha1.Task) error) {
		if len(writes) < maxAsk { // the watch of these brings the rest
			writes = append(writes, func() error { return c.onTask(ctx, w.Group, name, write) })
		}
	}
	for _, m := range steps.Evict {
		do(m.Name, func(ctx context.Context, t *v1alpha1.Task) error { return c.evict(ctx, t, m.Attempt) })
	}
	for _, r := range steps.Revise {
		do(r.Name, func(ctx context.Context, t *v1alpha1.Task) error { return c.revise(ctx, in, t, r.Forget) })
	}
	for _, name := range steps.Delete {
		do(name, func(ctx context.Context, t *v1alpha1.Task) error { return c.remove(ctx, w, t) })
	}
	errs := make([]error, len(writes))
	var all errgroup.Group
	all.SetLimit(maxBatch)
	for i, write := range writes {
		all.Go(func() error {
			errs[i] = write()
			return nil
		})
	}
	_ = all.Wait() // each error is in errs
	return errors.Join(errs...)
}

// onTask runs write on a Task of the group. That somebody was faster is no error.
func (c *Controller) onTask(ctx context.Context, g *v1alpha1.TaskGroup, name string, write func(context.Context, *v1alpha1.Task) error) error {
	var t v1alpha1.Task
	err := c.Get(ctx, client.ObjectKey{Namespace: g.Namespace, Name: name}, &t)
	if err == nil && metav1.IsControlledBy(&t, g) {
		err = write(ctx, &t)
	}
	if err == nil || apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("change task %s: %w", name, err)
}

// evict makes the Task leave its robot, if it is still the same attempt.
func (c *Controller) evict(ctx context.Context, t *v1alpha1.Task, attempt int32) error {
	if t.Status.Attempt != attempt || t.Spec.Evict == attempt {
		return nil
	}
	t.Spec.Evict = attempt
	return c.write(ctx, t)
}

// revise gives the Task its new definition, if it still waits.
func (c *Controller) revise(ctx context.Context, in mould, t *v1alpha1.Task, forget bool) error {
	state := lifecycle.TaskState(t.Status.State).Normal()
	defs := in.group.Spec.Definitions()
	i := slices.IndexFunc(defs, func(def *v1alpha1.TaskDefinition) bool { return def.Name == t.Spec.Name })
	if i < 0 || !waits(state) || t.Status.Original != 0 {
		return nil
	}
	if forget {
		t.Spec.Evict = 0
	}
	in.shape(t, defs[i])
	return c.write(ctx, t)
}

// write updates the Task and tells the tally at once: until the watch shows it,
// the same would be decided again.
func (c *Controller) write(ctx context.Context, t *v1alpha1.Task) error {
	if err := c.Update(ctx, t); err != nil {
		return err
	}
	c.tally.with(groupOf(t).UID, func(m *members) { m.see(c.Now(), t) })
	return nil
}

// remove deletes the Task as it was seen, unless a robot may be working on it.
func (c *Controller) remove(ctx context.Context, w *World, t *v1alpha1.Task) error {
	if w.mayRun(lifecycle.TaskState(t.Status.State)) || t.DeletionTimestamp != nil {
		return nil
	}
	return c.Delete(ctx, t, client.Preconditions{UID: &t.UID, ResourceVersion: &t.ResourceVersion})
}
