package raycluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	"k8s4r.io/k8s4r/internal/controllers/child"
)

// parallel is how many calls about the Pods of one cluster are under way at a time.
const parallel = 16

// apply does what the plan says, but for the status, in its order. Pods depend on the
// objects around them and come after them; the rest goes on past a failure.
func (c *Controller) apply(ctx context.Context, w *World, s Steps) error {
	for _, why := range s.Why {
		ctrl.LoggerFrom(ctx).V(1).Info(why)
	}
	if s.AddFinalizer != "" {
		return c.setFinalizers(ctx, w.Cluster, append(slices.Clone(w.Cluster.Finalizers), s.AddFinalizer))
	}
	if err := c.ensure(ctx, w.Cluster, s.Ensure); err != nil {
		return err
	}
	if s.Forget {
		c.expect.Forget(w.Cluster.UID)
	}
	errs := []error{c.restamp(ctx, s.Restamp), c.delete(ctx, w.Cluster, s.Delete)}
	if errors.Join(errs...) == nil {
		for _, e := range s.Said {
			c.event(w.Cluster, e)
		}
	}
	errs = append(errs, c.writeRefilled(ctx, w.Cluster, s.Refilled), c.create(ctx, w, s.Create), c.createJob(ctx, w.Cluster, s.Job))
	if err := errors.Join(errs...); err != nil || s.RemoveFinalizer == "" {
		return err
	}
	return c.setFinalizers(ctx, w.Cluster, slices.DeleteFunc(slices.Clone(w.Cluster.Finalizers), func(f string) bool { return f == s.RemoveFinalizer }))
}

// event reports about a cluster.
func (c *Controller) event(cluster *rayv1.RayCluster, e Event) {
	if e.Reason != "" {
		c.Recorder.Eventf(cluster, nil, e.Type, e.Reason, e.Action, "%.1000s", e.Message)
	}
}

func (c *Controller) warn(cluster *rayv1.RayCluster, reason, action, format string, args ...any) {
	c.event(cluster, Event{corev1.EventTypeWarning, reason, action, fmt.Sprintf(format, args...)})
}

func (c *Controller) setFinalizers(ctx context.Context, cluster *rayv1.RayCluster, want []string) error {
	return c.patchMetadata(ctx, cluster, map[string]any{"finalizers": want})
}

// patchMetadata of a cluster as it was seen. When somebody was faster the watch brings
// what there is to decide anew.
func (c *Controller) patchMetadata(ctx context.Context, cluster *rayv1.RayCluster, metadata map[string]any) error {
	metadata["resourceVersion"] = cluster.ResourceVersion
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return err
	}
	o := &rayv1.RayCluster{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: cluster.Name}}
	err = c.Patch(ctx, o, client.RawPatch("application/merge-patch+json", patch))
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("patch the metadata of %s: %w", cluster.Name, err)
	}
	c.expect.Wrote(o.UID, o.ResourceVersion)
	cluster.ResourceVersion = o.ResourceVersion // for what is written after it
	return nil
}

// restamp writes annotations of Pods that are taken over.
func (c *Controller) restamp(ctx context.Context, all []Restamp) error {
	return each(ctx, all, func(ctx context.Context, r Restamp) error {
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": r.Pod.UID, "annotations": r.Annotations}})
		if err != nil {
			return err
		}
		o := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: r.Pod.Namespace, Name: r.Pod.Name}}
		err = c.Patch(ctx, o, client.RawPatch("application/merge-patch+json", patch))
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("take over pod %s: %w", r.Pod.Name, err)
		}
		return nil
	})
}

// each does something with all items, some at a time, and goes on past failures.
func each[T any](ctx context.Context, items []T, do func(context.Context, T) error) error {
	var group errgroup.Group
	group.SetLimit(parallel)
	errs := make([]error, len(items))
	for i, item := range items {
		group.Go(func() error {
			errs[i] = do(ctx, item)
			return nil
		})
	}
	_ = group.Wait() // the errors are in errs
	return errors.Join(errs...)
}

// delete Pods, and the heads only when all others could be.
func (c *Controller) delete(ctx context.Context, cluster *rayv1.RayCluster, all []Deletion) error {
	one := func(ctx context.Context, d Deletion) error { return c.deleteOne(ctx, cluster, d) }
	head := slices.IndexFunc(all, func(d Deletion) bool { return isHead(d.Pod) })
	if head < 0 {
		head = len(all)
	}
	if err := each(ctx, all[:head], one); err != nil {
		return err
	}
	return each(ctx, all[head:], one)
}

// deleteOne deletes this Pod, and no later one of its name.
func (c *Controller) deleteOne(ctx context.Context, cluster *rayv1.RayCluster, d Deletion) error {
	c.expect.Delete(cluster.UID, d.Pod.UID)
	o := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: d.Pod.Namespace, Name: d.Pod.Name}}
	err := c.Delete(ctx, o, client.Preconditions{UID: &d.Pod.UID})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // it is gone, and the cache will show it
	}
	if err != nil {
		c.expect.Deleted(cluster.UID, d.Pod.UID)
		err = fmt.Errorf("delete pod %s: %w", d.Pod.Name, err)
		c.warn(cluster, failedDelete(d), actionDelete, "%s", err)
		return &failure{d.Failed, err}
	}
	c.event(cluster, d.Event)
	if d.Retry {
		s := slotOf(d.Pod)
		c.remember(cluster, func(m *memory) { m.retries[s] = retries(m.retries[s], d.Pod, c.Now()) })
	}
	return nil
}

func failedDelete(d Deletion) string {
	switch {
	case d.Failed == rayv1.ReasonFailedDeleteAllPods:
		return ReasonFailedDeletePods
	case isHead(d.Pod):
		return ReasonFailedDeleteHead
	case d.Event.Reason == "":
		return ReasonFailedDeleteGroup
	}
	return ReasonFailedDeleteWorker
}

// writeStatus writes it when a reader would act on the difference, and tells when to
// look again because it was too early for that. Zero: nothing is left to write.
func (c *Controller) writeStatus(ctx context.Context, w *World, status *rayv1.RayClusterStatus) (time.Time, error) {
	cluster := w.Cluster
	if !differs(&cluster.Status, status) {
		return time.Time{}, nil
	}
	now := c.Now()
	if due := w.LastStatus.Add(c.Options.Tick); due.After(now) && !urgent(&cluster.Status, status) {
		return due, nil
	}
	at := metav1.NewTime(now)
	status.LastUpdateTime = &at
	cluster.Status = *status
	written, err := c.expect.UpdateStatus(ctx, c, cluster)
	if written {
		c.remember(cluster, func(m *memory) { m.lastStatus = now })
	}
	return time.Time{}, err
}

// key of an object in what is remembered.
func key(kind, name string) string { return child.Name(child.MaxName, kind, name) }
