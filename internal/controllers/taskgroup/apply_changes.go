package taskgroup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/window"
)

// changeTasks evicts, updates and deletes existing Tasks. A Task that changed since the
// plan is left alone: its watch event triggers another plan.
func (c *Controller) changeTasks(ctx context.Context, w *Input, actions Actions) error {
	builders := map[bool]taskBuilder{false: w.newBuilderOf(false), true: w.newBuilderOf(true)}
	var writes []func() error
	do := func(name string, write func(context.Context, *v1alpha1.Task) error) {
		if len(writes) < maxReplicasPerPlan { // the events of these trigger the rest
			writes = append(writes, func() error { return c.updateOwnTask(ctx, w.Group, name, write) })
		}
	}
	for _, m := range actions.Evict {
		do(m.Name, func(ctx context.Context, t *v1alpha1.Task) error { return c.evictTask(ctx, w, t, m) })
	}
	for _, r := range actions.Revise {
		do(r.Name, func(ctx context.Context, t *v1alpha1.Task) error { return c.reviseTask(ctx, builders[r.Target], t, r) })
	}
	for _, change := range actions.ChangeRanges {
		do(change.Task, func(ctx context.Context, t *v1alpha1.Task) error { return c.changeRange(ctx, w, t, change) })
	}
	for _, name := range actions.Delete {
		do(name, func(ctx context.Context, t *v1alpha1.Task) error { return c.deleteTask(ctx, w, t) })
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

// updateOwnTask calls write with the named Task if the group owns it. Conflicts are not errors.
func (c *Controller) updateOwnTask(ctx context.Context, g *v1alpha1.TaskGroup, name string, write func(context.Context, *v1alpha1.Task) error) error {
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

// evictTask evicts the Task from its robot if it is still the same attempt.
func (c *Controller) evictTask(ctx context.Context, w *Input, t *v1alpha1.Task, m Member) error {
	if t.Status.Attempt != m.Attempt || !w.requestEviction(t, m) {
		return nil
	}
	return c.writeTask(ctx, t)
}

// requestEviction requests the eviction of an attempt, and reports whether that is new. An eviction that waits
// does not replace one that does not.
func (w *Input) requestEviction(t *v1alpha1.Task, m Member) bool {
	if t.Spec.EvictAttempt == m.Attempt && (m.EvictWaits || t.Spec.EvictionWaitsFor == "") {
		return false
	}
	w.markEvicted(t, m.Attempt)
	t.Spec.EvictionWaitsFor = ""
	if m.EvictWaits {
		t.Spec.EvictionWaitsFor = w.evictionWaitsFor(m.Robot)
	}
	return true
}

// evictionWaitsFor returns what an eviction from a robot for another definition waits for.
func (w *Input) evictionWaitsFor(robot string) string {
	if w.Interruptions != nil && w.scopeOf(w.Interruptions.Robots[robot].Namespace) == window.HoldsOnly {
		return v1alpha1.EvictionWaitsForHolds
	}
	return v1alpha1.EvictionWaitsForWindows
}

// markEvicted requests the eviction of an attempt. Without a time of its revision, the Task does not start
// again before the group has updated or released it: it would start with the definition that it has.
func (w *Input) markEvicted(t *v1alpha1.Task, attempt int32) {
	t.Spec.EvictAttempt = attempt
	if w.Waves != nil {
		delete(t.Annotations, v1alpha1.AnnotationRevisedAt)
	}
}

// reviseTask updates the Task to the definition of the builder if it still waits.
func (c *Controller) reviseTask(ctx context.Context, in taskBuilder, t *v1alpha1.Task, r Revision) error {
	state := lifecycle.TaskState(t.Status.State).OrPending()
	if !isWaiting(state) || t.Status.LostAttempt != 0 || !in.revise(c.Now(), t, r) {
		return nil
	}
	return c.writeTask(ctx, t)
}

// revise updates a waiting Task, and reports whether its definition exists.
func (m taskBuilder) revise(now time.Time, t *v1alpha1.Task, r Revision) bool {
	defs := m.group.Spec.TaskDefinitions()
	i := slices.IndexFunc(defs, func(def *v1alpha1.TaskDefinition) bool { return def.Name == t.Spec.Name })
	if i < 0 && !r.Keep {
		return false
	}
	if r.Forget {
		t.Spec.EvictAttempt, t.Spec.EvictionWaitsFor = 0, ""
	}
	if r.Keep {
		return true
	}
	m.applyDefinition(t, defs[i])
	if m.recordsTimes {
		metav1.SetMetaDataAnnotation(&t.ObjectMeta, v1alpha1.AnnotationRevisedAt, now.UTC().Format(time.RFC3339))
	}
	return true
}

// writeTask updates the Task and records the result at once. Otherwise the next plan
// could repeat the decision before the watch shows it.
func (c *Controller) writeTask(ctx context.Context, t *v1alpha1.Task) error {
	if err := c.Update(ctx, t); err != nil {
		return err
	}
	c.counts.withGroup(owningGroup(t).UID, func(m *groupTasks) { m.recordTask(c.Now(), t) })
	return nil
}

// deleteTask deletes this version of the Task unless a robot may be running it.
func (c *Controller) deleteTask(ctx context.Context, w *Input, t *v1alpha1.Task) error {
	if w.canBeRunning(lifecycle.TaskState(t.Status.State)) || t.DeletionTimestamp != nil {
		return nil
	}
	return c.Delete(ctx, t, client.Preconditions{UID: &t.UID, ResourceVersion: &t.ResourceVersion})
}
