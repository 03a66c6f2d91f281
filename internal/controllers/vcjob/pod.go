package vcjob

import (
	"cmp"
	"fmt"
	"maps"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/naming"
)

// inheritedKeys are the only labels and annotations of a Job that its Pods inherit.
var inheritedKeys = []string{"volcano.sh/preemptable", "volcano.sh/cooldown-time", "volcano.sh/revocable-zone"}

// keyEvictedAt is set on the replacement of an evicted Pod if a policy with a timeout will
// act on the eviction, so that the timeout survives a restart of the controller.
const keyEvictedAt = "k8s4r.io/evicted-at"

// podName returns the name of a replica. It is always the same, so that a stale cache
// cannot create duplicates.
func podName(job, task string, index int) string {
	return naming.ChildName(naming.MaxName, job, task, strconv.Itoa(index))
}

// groupName returns the name that a gang scheduler uses for the Pods of a Job.
func groupName(j *batchv1.Job) string { return j.Name + "-" + string(j.UID) }

// newPod returns the Pod of a replica.
func (b *builder) newPod(r replica) *corev1.Pod {
	j, spec, t, index := b.job, b.spec, r.task, r.index
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       j.Namespace,
			Name:            podName(j.Name, t.Name, index),
			Labels:          podLabels(j, spec, t, index),
			Annotations:     podAnnotations(j, spec, t, index),
			Finalizers:      t.Template.Finalizers,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(j, batchv1.GroupVersion.WithKind("Job"))},
		},
		Spec: *t.Template.Spec.DeepCopy(),
	}
	pod.Spec.SchedulerName = cmp.Or(pod.Spec.SchedulerName, spec.SchedulerName)
	pod.Spec.PriorityClassName = cmp.Or(pod.Spec.PriorityClassName, spec.PriorityClassName)
	mountVolumes(j, spec, pod)
	for i := range b.plugins {
		if change := b.plugins[i].changePod; change != nil {
			change(b, r, pod)
		}
	}
	return pod
}

func podLabels(j *batchv1.Job, spec *batchv1.JobSpec, t *batchv1.TaskSpec, index int) map[string]string {
	all := map[string]string{}
	maps.Copy(all, t.Template.Labels)
	copyInherited(all, j.Labels)
	maps.Copy(all, map[string]string{
		batchv1.KeyJobName:      naming.LabelValue(j.Name),
		batchv1.KeyJobNamespace: j.Namespace,
		batchv1.KeyTaskSpec:     t.Name,
		batchv1.KeyTaskIndex:    strconv.Itoa(index),
		batchv1.KeyQueueName:    naming.LabelValue(spec.Queue),
	})
	return all
}

func podAnnotations(j *batchv1.Job, spec *batchv1.JobSpec, t *batchv1.TaskSpec, index int) map[string]string {
	all := map[string]string{}
	maps.Copy(all, t.Template.Annotations)
	copyInherited(all, j.Annotations)
	maps.Copy(all, map[string]string{
		batchv1.KeyJobName:       j.Name,
		batchv1.KeyTaskSpec:      t.Name,
		batchv1.KeyTaskIndex:     strconv.Itoa(index),
		batchv1.KeyQueueName:     spec.Queue,
		batchv1.KeyJobVersion:    strconv.Itoa(int(j.Status.Version)),
		batchv1.KeyJobRetryCount: strconv.Itoa(int(j.Status.RetryCount)),
		batchv1.KeyTemplateUID:   j.Name + "-" + t.Name,
		batchv1.KeyGroupName:     groupName(j),
	})
	return all
}

func copyInherited(to, from map[string]string) {
	for _, key := range inheritedKeys {
		if v, ok := from[key]; ok {
			to[key] = v
		}
	}
}

// taskOf returns the task and the index of a Pod. The index is -1 if it has none.
func taskOf(p *corev1.Pod) (task string, index int) {
	index, err := strconv.Atoi(p.Annotations[batchv1.KeyTaskIndex])
	if err != nil || index < 0 {
		index = -1
	}
	return p.Annotations[batchv1.KeyTaskSpec], index
}

// podVersion returns the version of the Job that created the Pod.
func podVersion(p *corev1.Pod) int32 {
	n, err := strconv.ParseInt(p.Annotations[batchv1.KeyJobVersion], 10, 32)
	if err != nil {
		return 0
	}
	return int32(n)
}

// keyRestart is, on a marked Pod, the number of the restart that stops it. The mark has no
// effect until the Job's status counts that restart: the controller may have exited before
// it marked the other Pods.
const keyRestart = "k8s4r.io/restart"

// isMarkedOutOfSync reports whether the controller has decided to delete the Pod.
func isMarkedOutOfSync(p *corev1.Pod) bool { return p.Annotations[batchv1.KeyOutOfSync] == "true" }

// isRestartUncounted reports whether the Pod is marked for a restart that is not among the
// counted retries.
func isRestartUncounted(p *corev1.Pod, retries int32) bool {
	n, err := strconv.ParseInt(p.Annotations[keyRestart], 10, 32)
	return err == nil && isMarkedOutOfSync(p) && int32(n) > retries
}

// hasEnded reports whether the Pod has succeeded or failed.
func hasEnded(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// isReady reports whether the Pod is running with all containers ready.
func isReady(p *corev1.Pod) bool {
	if p.Status.Phase != corev1.PodRunning || len(p.Status.ContainerStatuses) == 0 {
		return false
	}
	for i := range p.Status.ContainerStatuses {
		if !p.Status.ContainerStatuses[i].Ready {
			return false
		}
	}
	return true
}

// countRestarts returns the container restarts of a Pod.
func countRestarts(p *corev1.Pod) int32 {
	var n int32
	for _, all := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for i := range all {
			n += all[i].RestartCount
		}
	}
	return n
}

// podExit returns exit code and end of the first container.
func podExit(p *corev1.Pod) (code int32, at time.Time) {
	at = lastConditionChange(p)
	if len(p.Status.ContainerStatuses) == 0 {
		return 0, at
	}
	if t := p.Status.ContainerStatuses[0].State.Terminated; t != nil {
		code = t.ExitCode
		if !t.FinishedAt.IsZero() {
			at = t.FinishedAt.Time
		}
	}
	return code, at
}

// lastConditionChange returns when the Pod's conditions last changed, or its creation
// time.
func lastConditionChange(p *corev1.Pod) time.Time {
	at := p.CreationTimestamp.Time
	for i := range p.Status.Conditions {
		if t := p.Status.Conditions[i].LastTransitionTime.Time; t.After(at) {
			at = t
		}
	}
	return at
}

// evictedAt returns when the Pod that this one replaces was evicted. Zero if none was.
func evictedAt(p *corev1.Pod) time.Time {
	at, err := time.Parse(time.RFC3339Nano, p.Annotations[keyEvictedAt])
	if err != nil {
		return time.Time{}
	}
	return at
}

// describeFailure returns a message on how a Pod failed.
func describeFailure(p *corev1.Pod) string {
	code, _ := podExit(p)
	switch {
	case p.Status.Reason != "":
		return fmt.Sprintf("Pod %s failed: %s", p.Name, p.Status.Reason)
	case code != 0:
		return fmt.Sprintf("Pod %s failed with exit code %d", p.Name, code)
	}
	return fmt.Sprintf("Pod %s failed", p.Name)
}
