package vcjob

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/child"
	"k8s4r.io/k8s4r/internal/lifecycle"
)

// observe reads what a decision about the Job depends on. It returns nil when
// there is nothing to decide, or not yet: the watch will bring what is missing.
func (c *Controller) observe(ctx context.Context, k types.NamespacedName) (*World, error) {
	var j batchv1.Job
	err := c.Get(ctx, k, &j)
	if apierrors.IsNotFound(err) {
		c.expect.Forget(c.memory.Forget(k))
		return nil, c.dropCommands(ctx, k)
	}
	if err != nil || c.expect.Stale(j.UID, j.ResourceVersion) {
		return nil, err
	}
	w := &World{Job: &j}
	if seen, err := c.pods(ctx, w); err != nil || !seen {
		return nil, err
	}
	if err := c.takeOrder(ctx, &j); err != nil {
		return nil, err
	}
	c.remember(&j, func(m *memory) {
		w.Order, w.Refused, w.LastStatus, w.Evicted = m.order, m.refused, m.lastStatus, maps.Clone(m.evicted)
	})
	if w.NoClaims, err = c.noClaims(ctx, &j); err != nil {
		return nil, err
	}
	w.Archives = c.Archives
	w.FlowWaits, err = c.flowWaits(ctx, &j)
	return w, err
}

// pods reads the Pods of the Job, and tells whether the cache shows what was
// last done to them.
func (c *Controller) pods(ctx context.Context, w *World) (seen bool, err error) {
	var list corev1.PodList
	err = c.List(ctx, &list, client.InNamespace(w.Job.Namespace), client.MatchingFields{indexPods: string(w.Job.UID)}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return false, fmt.Errorf("list pods: %w", err)
	}
	for i := range list.Items {
		pod := &list.Items[i]
		if c.expect.Stale(pod.UID, pod.ResourceVersion) {
			return false, nil // its mark does not show: it would be judged once more
		}
		c.expect.Created(w.Job.UID, pod.Name)
		w.Pods = append(w.Pods, pod)
	}
	w.Creating = c.expect.Creating(w.Job.UID)
	return c.lost(ctx, w)
}

// lost finds Pods that were counted and are gone, and tells whether the cache
// shows the Pods that there are. A cache that has just been filled may not.
func (c *Controller) lost(ctx context.Context, w *World) (seen bool, err error) {
	if w.Lost = Lost(w.Job, w.Pods, w.Creating); len(w.Lost) == 0 {
		return true, nil
	}
	var list metav1.PartialObjectMetadataList
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	err = c.Live.List(ctx, &list, client.InNamespace(w.Job.Namespace), client.MatchingLabels{batchv1.KeyJobName: child.Label(w.Job.Name)})
	if err != nil {
		return false, fmt.Errorf("list pods: %w", err)
	}
	known := map[string]bool{}
	for _, pod := range w.Pods {
		known[pod.Name] = true
	}
	for i := range list.Items {
		if o := &list.Items[i]; metav1.IsControlledBy(o, w.Job) && !known[o.Name] {
			return false, nil
		}
	}
	return true, nil
}

// Lost are replicas, by task, whose Pods the status counts and that are gone. The
// status has no names: it is the first that have no Pod. Only a Job that works
// loses Pods.
func Lost(j *batchv1.Job, pods []*corev1.Pod, creating map[string]bool) map[string][]int {
	if !lifecycle.VCJobPhase(j.Status.State.Phase).Works() {
		return nil
	}
	have := map[string]bool{}
	for _, pod := range pods {
		have[pod.Name] = true
	}
	all := map[string][]int{}
	for i := range j.Spec.Tasks {
		t := j.Spec.Tasks[i].DeepCopy()
		defaultTask(i, t)
		var counted int32
		for _, n := range j.Status.TaskStatusCount[t.Name].Phase {
			counted += n
		}
		if counted > t.Replicas {
			continue // it was made smaller
		}
		var gone []int
		for index := range int(t.Replicas) {
			if name := podName(j.Name, t.Name, index); !have[name] && !creating[name] {
				gone = append(gone, index)
			}
		}
		if n := int(counted) - (int(t.Replicas) - len(gone)); n > 0 {
			all[t.Name] = gone[:n]
		}
	}
	return all
}

// noClaims are the claims that a Job names and that do not exist.
func (c *Controller) noClaims(ctx context.Context, j *batchv1.Job) ([]string, error) {
	if !lifecycle.VCJobPhase(j.Status.State.Phase).Works() {
		return nil, nil
	}
	var missing []string
	for _, name := range namedClaims(&j.Spec) {
		claim := &metav1.PartialObjectMetadata{}
		claim.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"))
		err := c.Get(ctx, client.ObjectKey{Namespace: j.Namespace, Name: name}, claim)
		if apierrors.IsNotFound(err) {
			missing = append(missing, name)
		} else if err != nil {
			return nil, fmt.Errorf("get volume claim %s: %w", name, err)
		}
	}
	return missing, nil
}

// flowWaits tells whether the JobFlow of a finished Job has not taken notice of
// its end. One that is gone, or was made anew, never will.
func (c *Controller) flowWaits(ctx context.Context, j *batchv1.Job) (bool, error) {
	owner := metav1.GetControllerOf(j)
	if owner == nil || owner.Kind != "JobFlow" || j.Spec.TTLSecondsAfterFinished == nil || !lifecycle.VCJobPhase(j.Status.State.Phase).Finished() {
		return false, nil
	}
	var flow flowv1.JobFlow
	err := c.Get(ctx, client.ObjectKey{Namespace: j.Namespace, Name: owner.Name}, &flow)
	if apierrors.IsNotFound(err) || err == nil && flow.UID != owner.UID {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("get job flow %s: %w", owner.Name, err)
	}
	return !flow.Status.Recorded(j.Name, string(j.UID)), nil
}
