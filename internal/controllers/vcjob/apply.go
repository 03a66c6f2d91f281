package vcjob

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
)

// maxParallelCalls bounds the concurrent calls about the Pods of one Job.
const maxParallelCalls = 16

// apply executes the plan in its order. The status records what will be stopped before
// anything is stopped, so that an interrupted stop is completed later. It reports whether
// to reconcile again at once.
func (c *Controller) apply(ctx context.Context, in *Input, actions Actions) (again bool, err error) {
	j := in.Job
	if err := c.markRestart(ctx, actions); err != nil {
		return false, err
	}
	if err := c.deleteObjects(ctx, j, actions.DeleteObjects); err != nil {
		return false, err
	}
	if written, err := c.writeStatus(ctx, j, actions); err != nil || !written {
		return false, err // the Job has changed; the watch triggers another reconcile
	}
	c.updateMemory(j, func(m *memory) {
		m.evictedAt = actions.EvictedAt
		if m.command != nil && in.Command != nil {
			again, m.command = true, nil // there may be another Command
		}
	})
	c.recordEvents(j, in, actions)
	if err := forEachPod(ctx, actions.StopPods, c.stopPod); err != nil {
		return false, err
	}
	if err := c.ensureObjects(ctx, j, actions.EnsureObjects); err != nil {
		return false, err
	}
	more, err := c.createPods(ctx, j, actions.CreatePods)
	if actions.DeleteJob {
		err = errors.Join(err, c.deleteExpiredJob(ctx, j))
	}
	return again || more, err
}

// forEachPod calls do for all Pods concurrently and stops after an error.
func forEachPod(ctx context.Context, pods []*corev1.Pod, do func(context.Context, *corev1.Pod) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(maxParallelCalls)
	for _, pod := range pods {
		if ctx.Err() != nil {
			break // Wait returns the first error
		}
		group.Go(func() error { return do(ctx, pod) })
	}
	return group.Wait()
}

// markRestart marks the Pods of a partial restart that the status is about to count.
func (c *Controller) markRestart(ctx context.Context, actions Actions) error {
	if len(actions.MarkPods) == 0 {
		return nil
	}
	number := strconv.Itoa(int(actions.Status.RetryCount))
	return forEachPod(ctx, actions.MarkPods, func(ctx context.Context, pod *corev1.Pod) error {
		if isMarkedOutOfSync(pod) {
			return nil // marked before an interruption
		}
		return c.annotatePod(ctx, pod, map[string]string{batchv1.KeyOutOfSync: "true", keyRestart: number})
	})
}

// markPod marks a Pod whose end is caused by the controller.
func (c *Controller) markPod(ctx context.Context, pod *corev1.Pod) error {
	if isMarkedOutOfSync(pod) {
		return nil
	}
	return c.annotatePod(ctx, pod, map[string]string{batchv1.KeyOutOfSync: "true"})
}

// annotatePod annotates this Pod, but no later one of its name.
func (c *Controller) annotatePod(ctx context.Context, pod *corev1.Pod, annotations map[string]string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID, "annotations": annotations}})
	if err != nil {
		return fmt.Errorf("mark pod %s: %w", pod.Name, err)
	}
	o := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	err = c.Patch(ctx, o, client.RawPatch(types.MergePatchType, patch))
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // deleted or replaced
	}
	if err != nil {
		return fmt.Errorf("mark pod %s: %w", pod.Name, err)
	}
	c.expect.RecordWrite(pod.UID, o.ResourceVersion)
	return nil
}

// stopPod deletes this Pod, but no later one of its name.
func (c *Controller) stopPod(ctx context.Context, pod *corev1.Pod) error {
	if err := c.markPod(ctx, pod); err != nil {
		return err
	}
	o := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	err := c.Delete(ctx, o, client.Preconditions{UID: &pod.UID})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete pod %s: %w", pod.Name, err)
	}
	return nil
}

// writeStatus reports whether the stored status is the planned one.
func (c *Controller) writeStatus(ctx context.Context, j *batchv1.Job, actions Actions) (bool, error) {
	if actions.Status == nil {
		return true, nil
	}
	j.Status = *actions.Status
	written, err := c.expect.UpdateStatus(ctx, c, j)
	if !written {
		return false, err
	}
	c.updateMemory(j, func(m *memory) { m.lastStatusWrite = c.Now() })
	if actions.Change != nil {
		countEnd(j, actions.Change.To)
	}
	return true, nil
}

// recordEvents records events about what was written.
func (c *Controller) recordEvents(j *batchv1.Job, in *Input, actions Actions) {
	if a := actions.Executed; a != "" { // reason and text are Volcano's
		c.Recorder.Eventf(j, nil, corev1.EventTypeNormal, ReasonExecuteAction, string(a), "Start to execute action %s", a)
	}
	if ch := actions.Change; ch != nil {
		kind := corev1.EventTypeNormal
		if ch.To == lifecycle.VCJobFailed || ch.To == lifecycle.VCJobTerminating {
			kind = corev1.EventTypeWarning
		}
		c.Recorder.Eventf(j, nil, kind, string(ch.To), "Run", "%s: %s", ch.Reason, ch.Message)
	}
	if actions.CommandRejection != "" && in.Command != nil {
		c.Recorder.Eventf(j, nil, corev1.EventTypeWarning, ReasonCommandRefused, "Command", "%s", actions.CommandRejection)
	}
}

// deleteExpiredJob deletes this Job, but no later one of its name, once its Pods are
// deleted.
func (c *Controller) deleteExpiredJob(ctx context.Context, j *batchv1.Job) error {
	ctrl.LoggerFrom(ctx).V(1).Info("delete the Job: ttlSecondsAfterFinished has passed")
	err := c.Delete(ctx, j, client.Preconditions{UID: &j.UID}, client.PropagationPolicy(metav1.DeletePropagationForeground))
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete job %s: %w", j.Name, err)
	}
	return nil
}
