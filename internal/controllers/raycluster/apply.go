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
	"k8s4r.io/k8s4r/internal/core/naming"
)

// maxParallelCalls is the number of concurrent Pod requests for one cluster.
const maxParallelCalls = 16

// applyActions applies everything in s except the status, in the order of its fields. It stops if
// an object that Pods depend on cannot be created; later errors are collected and joined.
func (c *Controller) applyActions(ctx context.Context, w *Input, s Actions) error {
	for _, why := range s.Reasons {
		ctrl.LoggerFrom(ctx).V(1).Info(why)
	}
	if s.AddFinalizer != "" {
		return c.setFinalizers(ctx, w.Cluster, append(slices.Clone(w.Cluster.Finalizers), s.AddFinalizer))
	}
	if len(s.Create) > 0 {
		c.expireSecretCheck(w.Cluster)
	}
	if err := c.ensureObjects(ctx, w.Cluster, s.Ensure); err != nil {
		return err
	}
	if s.Forget {
		c.expect.ForgetOwner(w.Cluster.UID)
	}
	errs := []error{c.deletePolicies(ctx, w.Cluster, s.DeletePolicies), c.restampPods(ctx, w.Cluster, s.Restamp), c.deletePods(ctx, w.Cluster, s.Delete)}
	if errors.Join(errs...) == nil {
		for _, e := range s.Events {
			c.recordEvent(w.Cluster, e)
		}
	}
	errs = append(errs, c.createMissing(ctx, w, s), c.createJob(ctx, w.Cluster, s.Job))
	if err := errors.Join(errs...); err != nil || s.RemoveFinalizer == "" {
		return err
	}
	return c.setFinalizers(ctx, w.Cluster, slices.DeleteFunc(slices.Clone(w.Cluster.Finalizers), func(f string) bool { return f == s.RemoveFinalizer }))
}

// recordEvent records an event on the cluster. If e has no reason, it does nothing.
func (c *Controller) recordEvent(cluster *rayv1.RayCluster, e Event) {
	if e.Reason != "" {
		c.Recorder.Eventf(cluster, nil, e.Type, e.Reason, e.Action, "%.1000s", e.Message)
	}
}

func (c *Controller) recordWarning(cluster *rayv1.RayCluster, reason, action, format string, args ...any) {
	c.recordEvent(cluster, Event{corev1.EventTypeWarning, reason, action, fmt.Sprintf(format, args...)})
}

func (c *Controller) setFinalizers(ctx context.Context, cluster *rayv1.RayCluster, want []string) error {
	return c.patchMetadata(ctx, cluster, map[string]any{"finalizers": want})
}

// patchMetadata applies a merge patch to the cluster's metadata at the observed resourceVersion.
// A conflict is not an error: the watch delivers the newer object and the plan is made again.
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
		return c.reportWrite(cluster, ReasonFailedUpdateCluster, rayv1.ReasonFailedUpdateRayCluster, fmt.Errorf("patch metadata of raycluster %s: %w", cluster.Name, err))
	}
	c.expect.RecordWrite(o.UID, o.ResourceVersion)
	cluster.ResourceVersion = o.ResourceVersion // for the writes that follow
	return nil
}

// reportWrite records a failed write as an event, and returns it with the reason that it gives the
// condition ReplicaFailure.
func (c *Controller) reportWrite(cluster *rayv1.RayCluster, event, condition string, err error) error {
	c.recordWarning(cluster, event, actionUpdate, "%s", err)
	return &failure{condition, err}
}

// restampPods writes the annotations of Pods that are adopted from another controller version.
func (c *Controller) restampPods(ctx context.Context, cluster *rayv1.RayCluster, all []Restamp) error {
	return forEachParallel(ctx, all, func(ctx context.Context, r Restamp) error {
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": r.Pod.UID, "annotations": r.Annotations}})
		if err != nil {
			return err
		}
		o := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: r.Pod.Namespace, Name: r.Pod.Name}}
		err = c.Patch(ctx, o, client.RawPatch("application/merge-patch+json", patch))
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return c.reportWrite(cluster, ReasonFailedUpdatePod, rayv1.ReasonFailedUpdatePod, fmt.Errorf("adopt pod %s: %w", r.Pod.Name, err))
		}
		return nil
	})
}

// forEachParallel calls do for every item, at most maxParallelCalls at a time, and joins all errors.
func forEachParallel[T any](ctx context.Context, items []T, do func(context.Context, T) error) error {
	var group errgroup.Group
	group.SetLimit(maxParallelCalls)
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

// deletePods deletes the workers first, and the heads only if every worker was deleted.
func (c *Controller) deletePods(ctx context.Context, cluster *rayv1.RayCluster, all []Deletion) error {
	one := func(ctx context.Context, d Deletion) error { return c.deleteOne(ctx, cluster, d) }
	head := slices.IndexFunc(all, func(d Deletion) bool { return isHead(d.Pod) })
	if head < 0 {
		head = len(all)
	}
	if err := forEachParallel(ctx, all[:head], one); err != nil {
		return err
	}
	return forEachParallel(ctx, all[head:], one)
}

// deleteOne deletes the Pod with this UID. A newer Pod of the same name is left alone.
func (c *Controller) deleteOne(ctx context.Context, cluster *rayv1.RayCluster, d Deletion) error {
	c.expect.ExpectDelete(cluster.UID, d.Pod.UID)
	o := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: d.Pod.Namespace, Name: d.Pod.Name}}
	err := c.Delete(ctx, o, client.Preconditions{UID: &d.Pod.UID})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // already deleted; the cache will show it
	}
	if err != nil {
		c.expect.ObserveDelete(cluster.UID, d.Pod.UID)
		err = fmt.Errorf("delete pod %s: %w", d.Pod.Name, err)
		c.recordWarning(cluster, failedDeleteReason(d), actionDelete, "%s", err)
		return &failure{d.Failed, err}
	}
	c.recordEvent(cluster, d.Event)
	if d.Retry {
		s := slotOf(d.Pod)
		c.updateMemory(cluster, func(m *memory) { m.retries[s] = countRetries(m.retries[s], d.Pod, c.Now()) })
	}
	return nil
}

func failedDeleteReason(d Deletion) string {
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

// writeStatus writes the status if it is due. If it is too early, it returns the time to try again;
// the zero time means that nothing is left to write.
func (c *Controller) writeStatus(ctx context.Context, w *Input, status *rayv1.RayClusterStatus) (time.Time, error) {
	cluster := w.Cluster
	now := c.Now()
	var times statusTimes
	c.updateMemory(cluster, func(m *memory) { times = m.statusTimes })
	if due, needed := statusDue(c.Options.Tick, times, &cluster.Status, status); !needed || due.After(now) {
		return due, nil
	}
	at, urgent := metav1.NewTime(now), isUrgentChange(&cluster.Status, status)
	status.LastUpdateTime = &at
	before, provisionedAt := provisionedTime(&cluster.Status), provisionedTime(status)
	cluster.Status = *status
	written, err := c.expect.UpdateStatus(ctx, c, cluster)
	if err != nil {
		c.recordWarning(cluster, ReasonFailedUpdateCluster, actionUpdate, "%s", err)
	}
	if written {
		c.updateMemory(cluster, func(m *memory) {
			m.statusTimes.recordWrite(now, urgent)
			if !provisionedAt.Equal(before) {
				m.provisionedAt = provisionedAt
			}
		})
	}
	return time.Time{}, err
}

// objectKey returns the key of an object in memory.ensured.
func objectKey(kind, name string) string { return naming.ChildName(naming.MaxName, kind, name) }
