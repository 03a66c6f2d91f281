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
	"k8s4r.io/k8s4r/internal/lifecycle"
)

// parallel is how many calls about the Pods of one Job are under way at a time.
const parallel = 16

// apply does what the plan says, in its order: the status says what is to be
// stopped before anything is, so that an interruption is finished and not
// forgotten. It tells whether to look again at once.
func (c *Controller) apply(ctx context.Context, w *World, steps Steps) (again bool, err error) {
	j := w.Job
	if err := c.markRestart(ctx, steps); err != nil {
		return false, err
	}
	if err := c.drop(ctx, j, steps.Drop); err != nil {
		return false, err
	}
	if written, err := c.writeStatus(ctx, j, steps); err != nil || !written {
		return false, err // somebody was faster; the watch brings what there is to decide anew
	}
	c.remember(j, func(m *memory) {
		m.evicted = steps.Evicted
		if m.order != nil && w.Order != nil {
			again, m.order = true, nil // there may be another Command
		}
	})
	c.tell(j, w, steps)
	if err := each(ctx, steps.Stop, c.stop); err != nil {
		return false, err
	}
	if err := c.ensure(ctx, j, steps.Ensure); err != nil {
		return false, err
	}
	more, err := c.createPods(ctx, j, steps.Create)
	if steps.Delete {
		err = errors.Join(err, c.expire(ctx, j))
	}
	return again || more, err
}

// each does something with all Pods, some at a time, and stops at an error.
func each(ctx context.Context, pods []*corev1.Pod, do func(context.Context, *corev1.Pod) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for _, pod := range pods {
		if ctx.Err() != nil {
			break // Wait tells the first error
		}
		group.Go(func() error { return do(ctx, pod) })
	}
	return group.Wait()
}

// markRestart marks the Pods of a restart that the status is about to count.
func (c *Controller) markRestart(ctx context.Context, steps Steps) error {
	if len(steps.Mark) == 0 {
		return nil
	}
	number := strconv.Itoa(int(steps.Status.RetryCount))
	return each(ctx, steps.Mark, func(ctx context.Context, pod *corev1.Pod) error {
		if marked(pod) {
			return nil // by a controller that got no further
		}
		return c.annotate(ctx, pod, map[string]string{batchv1.KeyOutOfSync: "true", keyRestart: number})
	})
}

// mark says on a Pod that its end is the Job's own doing.
func (c *Controller) mark(ctx context.Context, pod *corev1.Pod) error {
	if marked(pod) {
		return nil
	}
	return c.annotate(ctx, pod, map[string]string{batchv1.KeyOutOfSync: "true"})
}

// annotate this Pod, and no later one of its name.
func (c *Controller) annotate(ctx context.Context, pod *corev1.Pod, annotations map[string]string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID, "annotations": annotations}})
	if err != nil {
		return fmt.Errorf("mark pod %s: %w", pod.Name, err)
	}
	o := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	err = c.Patch(ctx, o, client.RawPatch(types.MergePatchType, patch))
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // it is gone
	}
	if err != nil {
		return fmt.Errorf("mark pod %s: %w", pod.Name, err)
	}
	c.expect.Wrote(pod.UID, o.ResourceVersion)
	return nil
}

// stop deletes this Pod, and no later one of its name.
func (c *Controller) stop(ctx context.Context, pod *corev1.Pod) error {
	if err := c.mark(ctx, pod); err != nil {
		return err
	}
	o := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	err := c.Delete(ctx, o, client.Preconditions{UID: &pod.UID})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete pod %s: %w", pod.Name, err)
	}
	return nil
}

// writeStatus tells whether the status is as the plan has it.
func (c *Controller) writeStatus(ctx context.Context, j *batchv1.Job, steps Steps) (bool, error) {
	if steps.Status == nil {
		return true, nil
	}
	j.Status = *steps.Status
	written, err := c.expect.UpdateStatus(ctx, c, j)
	if written {
		c.remember(j, func(m *memory) { m.lastStatus = c.Now() })
	}
	return written, err
}

// tell makes events of what has been written.
func (c *Controller) tell(j *batchv1.Job, w *World, steps Steps) {
	if ch := steps.Change; ch != nil {
		kind := corev1.EventTypeNormal
		if ch.To == lifecycle.VCJobFailed || ch.To == lifecycle.VCJobTerminating {
			kind = corev1.EventTypeWarning
		}
		c.Recorder.Eventf(j, nil, kind, string(ch.To), "Run", "%s: %s", ch.Reason, ch.Why)
	}
	if steps.Unanswered != "" && w.Order != nil {
		c.Recorder.Eventf(j, nil, corev1.EventTypeWarning, ReasonCommandRefused, "Command", "%s", steps.Unanswered)
	}
}

// expire deletes this Job, and no later one of its name, once its Pods are gone.
func (c *Controller) expire(ctx context.Context, j *batchv1.Job) error {
	ctrl.LoggerFrom(ctx).V(1).Info("delete the Job: its ttlSecondsAfterFinished are over")
	err := c.Delete(ctx, j, client.Preconditions{UID: &j.UID}, client.PropagationPolicy(metav1.DeletePropagationForeground))
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete job %s: %w", j.Name, err)
	}
	return nil
}
