package vcjob

import (
	"fmt"
	"maps"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/child"
)

// handedDown are labels and annotations of a Job that are its Pods' as well. No
// others are.
var handedDown = []string{"volcano.sh/preemptable", "volcano.sh/cooldown-time", "volcano.sh/revocable-zone"}

// keyEvictedAt is when the Pod was evicted that this one stands for, on a Pod
// whose eviction a policy answers after a timeout. So the timeout survives a
// restart of the controller.
const keyEvictedAt = "k8s4r.io/evicted-at"

// podName is the name of a replica: always the same one, so that a stale cache
// cannot make twins.
func podName(job, task string, index int) string {
	return child.Name(child.MaxName, job, task, strconv.Itoa(index))
}

// groupName is what a gang scheduler would call the Pods of a Job.
func groupName(j *batchv1.Job) string { return j.Name + "-" + string(j.UID) }

// newPod is one replica of a task. spec has its defaults.
func newPod(j *batchv1.Job, spec *batchv1.JobSpec, t *batchv1.TaskSpec, index int) *corev1.Pod {
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
	pod.Spec.SchedulerName = or(pod.Spec.SchedulerName, spec.SchedulerName)
	pod.Spec.PriorityClassName = or(pod.Spec.PriorityClassName, spec.PriorityClassName)
	mount(j, spec, pod)
	if _, on := spec.Plugins[pluginEnv]; on {
		addIndex(pod, index)
	}
	if args, on := spec.Plugins[pluginSvc]; on {
		addHosts(j, spec, pod, svcFlags(args))
	}
	return pod
}

func podLabels(j *batchv1.Job, spec *batchv1.JobSpec, t *batchv1.TaskSpec, index int) map[string]string {
	all := map[string]string{}
	maps.Copy(all, t.Template.Labels)
	inherit(all, j.Labels)
	maps.Copy(all, map[string]string{
		batchv1.KeyJobName:      child.Label(j.Name),
		batchv1.KeyJobNamespace: j.Namespace,
		batchv1.KeyTaskSpec:     t.Name,
		batchv1.KeyTaskIndex:    strconv.Itoa(index),
		batchv1.KeyQueueName:    child.Label(spec.Queue),
	})
	return all
}

func podAnnotations(j *batchv1.Job, spec *batchv1.JobSpec, t *batchv1.TaskSpec, index int) map[string]string {
	all := map[string]string{}
	maps.Copy(all, t.Template.Annotations)
	inherit(all, j.Annotations)
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

func inherit(to, from map[string]string) {
	for _, key := range handedDown {
		if v, ok := from[key]; ok {
			to[key] = v
		}
	}
}

// taskOf is the name of a Pod's task, and which replica it is. -1: none.
func taskOf(p *corev1.Pod) (task string, index int) {
	index, err := strconv.Atoi(p.Annotations[batchv1.KeyTaskIndex])
	if err != nil || index < 0 {
		index = -1
	}
	return p.Annotations[batchv1.KeyTaskSpec], index
}

// version of the Job that made the Pod.
func version(p *corev1.Pod) int32 {
	n, err := strconv.ParseInt(p.Annotations[batchv1.KeyJobVersion], 10, 32)
	if err != nil {
		return 0
	}
	return int32(n)
}

// keyRestart is, on a marked Pod, the number of the restart that stops it. Until the
// Job's status counts that one, the mark is no more than an intention: whoever made
// it may have died before the other marks, and before the status.
const keyRestart = "k8s4r.io/restart"

// marked tells whether the controller itself has decided to delete the Pod.
func marked(p *corev1.Pod) bool { return p.Annotations[batchv1.KeyOutOfSync] == "true" }

// intended tells whether the Pod is marked for a restart that the Job, restarted
// retries times, does not count yet.
func intended(p *corev1.Pod, retries int32) bool {
	n, err := strconv.ParseInt(p.Annotations[keyRestart], 10, 32)
	return err == nil && marked(p) && int32(n) > retries
}

// ended tells whether the Pod has run to an end.
func ended(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// ready tells whether the Pod runs, with all of its containers ready.
func ready(p *corev1.Pod) bool {
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

// restarts of the containers of a Pod.
func restarts(p *corev1.Pod) int32 {
	var n int32
	for _, all := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for i := range all {
			n += all[i].RestartCount
		}
	}
	return n
}

// end is how the first container ended, and when: its exit code alone counts.
func end(p *corev1.Pod) (code int32, at time.Time) {
	at = changed(p)
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

// changed is when the Pod's conditions last changed, or else its creation.
func changed(p *corev1.Pod) time.Time {
	at := p.CreationTimestamp.Time
	for i := range p.Status.Conditions {
		if t := p.Status.Conditions[i].LastTransitionTime.Time; t.After(at) {
			at = t
		}
	}
	return at
}

// evictedAt is when the Pod that this one stands for was evicted. Zero: none was.
func evictedAt(p *corev1.Pod) time.Time {
	at, err := time.Parse(time.RFC3339Nano, p.Annotations[keyEvictedAt])
	if err != nil {
		return time.Time{}
	}
	return at
}

// describe says how a Pod ended, for people.
func describe(p *corev1.Pod) string {
	code, _ := end(p)
	switch {
	case p.Status.Reason != "":
		return fmt.Sprintf("Pod %s failed: %s", p.Name, p.Status.Reason)
	case code != 0:
		return fmt.Sprintf("Pod %s failed with exit code %d", p.Name, code)
	}
	return fmt.Sprintf("Pod %s failed", p.Name)
}
