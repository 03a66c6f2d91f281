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
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/naming"
)

// observe reads the input of a plan. It returns nil if there is nothing to decide, or if
// the cache is stale and a watch event will follow.
func (c *Controller) observe(ctx context.Context, k types.NamespacedName) (*Input, error) {
	var j batchv1.Job
	err := c.Get(ctx, k, &j)
	if apierrors.IsNotFound(err) {
		c.expect.ForgetOwner(c.memory.ForgetObject(k))
		deleteCounts(k.Namespace, k.Name)
		return nil, c.deleteCommands(ctx, k)
	}
	if err != nil || c.expect.IsStale(j.UID, j.ResourceVersion) {
		return nil, err
	}
	in := &Input{Job: &j}
	if seen, err := c.listPods(ctx, in); err != nil || !seen {
		return nil, err
	}
	if err := c.takeCommand(ctx, &j); err != nil {
		return nil, err
	}
	c.updateMemory(&j, func(m *memory) {
		in.Command, in.Rejection, in.LastStatusWrite, in.EvictedAt = m.command, m.rejection, m.lastStatusWrite, maps.Clone(m.evictedAt)
	})
	if in.MissingClaims, err = c.findMissingClaims(ctx, &j); err != nil {
		return nil, err
	}
	in.Archives = c.Archives
	in.FlowPending, err = c.isFlowPending(ctx, &j)
	return in, err
}

// listPods reads the Pods of the Job and reports whether the cache shows our last writes
// to them.
func (c *Controller) listPods(ctx context.Context, in *Input) (seen bool, err error) {
	var list corev1.PodList
	err = c.List(ctx, &list, client.InNamespace(in.Job.Namespace), client.MatchingFields{indexPods: string(in.Job.UID)}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return false, fmt.Errorf("list pods: %w", err)
	}
	for i := range list.Items {
		pod := &list.Items[i]
		if c.expect.IsStale(pod.UID, pod.ResourceVersion) {
			return false, nil // without its mark the Pod would be handled twice
		}
		c.expect.ObserveCreate(in.Job.UID, pod.Name)
		in.Pods = append(in.Pods, pod)
	}
	in.Creating = c.expect.PendingCreates(in.Job.UID)
	return c.findLostPods(ctx, in)
}

// findLostPods finds Pods that were counted and do not exist any more. It reports whether
// the cache shows all existing Pods; after a start it may not.
func (c *Controller) findLostPods(ctx context.Context, in *Input) (seen bool, err error) {
	if in.LostReplicas = LostReplicas(in.Job, in.Pods, in.Creating); len(in.LostReplicas) == 0 {
		return true, nil
	}
	var list metav1.PartialObjectMetadataList
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	err = c.Live.List(ctx, &list, client.InNamespace(in.Job.Namespace), client.MatchingLabels{batchv1.KeyJobName: naming.LabelValue(in.Job.Name)})
	if err != nil {
		return false, fmt.Errorf("list pods: %w", err)
	}
	known := map[string]bool{}
	for _, pod := range in.Pods {
		known[pod.Name] = true
	}
	for i := range list.Items {
		if o := &list.Items[i]; metav1.IsControlledBy(o, in.Job) && !known[o.Name] {
			return false, nil
		}
	}
	return true, nil
}

// LostReplicas returns replicas, by task, whose Pods the status counts and that do not
// exist. The status has no names, so these are the first replicas without a Pod. Only in
// phases that manage Pods can Pods be lost.
func LostReplicas(j *batchv1.Job, pods []*corev1.Pod, creating map[string]bool) map[string][]int {
	if !lifecycle.VCJobPhase(j.Status.State.Phase).ManagesPods() {
		return nil
	}
	have := map[string]bool{}
	for _, pod := range pods {
		have[pod.Name] = true
	}
	all := map[string][]int{}
	for i := range j.Spec.Tasks {
		t := &j.Spec.Tasks[i]
		name := taskName(i, t)
		if len(j.Status.TaskStatusCount[name].Phase) == 0 || t.Replicas > batchv1.MaxTaskReplicas {
			continue // none was counted, or the Job fails for its replicas
		}
		gone := findGone(int(t.Replicas), countedPods(j.Status.TaskStatusCount[name]), func(index int) bool {
			pod := podName(j.Name, name, index)
			return have[pod] || creating[pod]
		})
		if len(gone) > 0 {
			all[name] = gone
		}
	}
	return all
}

func countedPods(s batchv1.TaskState) (n int) {
	for _, count := range s.Phase {
		n += int(count)
	}
	return n
}

// findGone returns the first missing replicas, as many as were counted and do not exist. None if
// more were counted than there are replicas: the task was scaled down.
func findGone(replicas, counted int, exists func(index int) bool) []int {
	if counted > replicas {
		return nil
	}
	var gone []int
	existing := 0
	for index := range replicas {
		switch {
		case exists(index):
			existing++
		case len(gone) < counted:
			gone = append(gone, index)
		}
	}
	return gone[:min(len(gone), max(counted-existing, 0))]
}

// findMissingClaims returns the claims that the Job names and that do not exist.
func (c *Controller) findMissingClaims(ctx context.Context, j *batchv1.Job) ([]string, error) {
	if !lifecycle.VCJobPhase(j.Status.State.Phase).ManagesPods() {
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

// isFlowPending reports whether the JobFlow of a finished Job has not recorded its end
// yet. A deleted or recreated JobFlow never will.
func (c *Controller) isFlowPending(ctx context.Context, j *batchv1.Job) (bool, error) {
	owner := metav1.GetControllerOf(j)
	if owner == nil || owner.Kind != "JobFlow" || j.Spec.TTLSecondsAfterFinished == nil || !lifecycle.VCJobPhase(j.Status.State.Phase).IsFinished() {
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
	return !flow.Status.IsJobRecorded(j.Name, string(j.UID)), nil
}
