package vcjob

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
)

var t0 = time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)

// job returns a Job with tasks named a, b, … with these numbers of replicas.
func job(phase batchv1.JobPhase, replicas ...int32) *batchv1.Job {
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "j", UID: "u", CreationTimestamp: metav1.NewTime(t0)}}
	for i, n := range replicas {
		t := batchv1.TaskSpec{Name: string(rune('a' + i)), Replicas: n}
		t.Template.Spec.Containers = []corev1.Container{{Name: "main", Image: "image"}}
		j.Spec.Tasks = append(j.Spec.Tasks, t)
	}
	j.Status.State = batchv1.JobState{Phase: phase, Reason: "Test", Message: "set by the test"}
	if phase == "" {
		j.Status.State = batchv1.JobState{}
	}
	return j
}

func policy(event batchv1.Event, action batchv1.Action) batchv1.LifecyclePolicy {
	return batchv1.LifecyclePolicy{Event: event, Action: action}
}

func exit(code int32, action batchv1.Action) batchv1.LifecyclePolicy {
	return batchv1.LifecyclePolicy{ExitCode: &code, Action: action}
}

func after(d time.Duration, p batchv1.LifecyclePolicy) batchv1.LifecyclePolicy {
	p.Timeout = batchv1.NewDuration(d)
	return p
}

// pod parses a Pod of a Job, such as "a0 Running" or "a0 Failed 3", followed by -marked,
// -intended or -counted (marked for a restart that the status does not count, or does),
// -deleted or -old (of an older version).
func pod(j *batchv1.Job, words string) *corev1.Pod {
	f := strings.Fields(words)
	spec := Defaulted(&j.Spec)
	var p *corev1.Pod
	for i := range spec.Tasks {
		var index int
		if t := &spec.Tasks[i]; strings.HasPrefix(f[0], t.Name) {
			fmt.Sscan(f[0][len(t.Name):], &index)
			p = newBuilder(j, spec).newPod(replica{t, index})
		}
	}
	p.UID, p.CreationTimestamp = types.UID(p.Name), metav1.NewTime(t0)
	set(p, corev1.PodPhase(f[1]), 0)
	for _, more := range f[2:] {
		switch more {
		case "-marked":
			p.Annotations[batchv1.KeyOutOfSync] = "true"
		case "-intended":
			p.Annotations[batchv1.KeyOutOfSync], p.Annotations[keyRestart] = "true", fmt.Sprint(j.Status.RetryCount+1)
		case "-counted":
			p.Annotations[batchv1.KeyOutOfSync], p.Annotations[keyRestart] = "true", fmt.Sprint(j.Status.RetryCount)
		case "-deleted":
			at := metav1.NewTime(t0)
			p.DeletionTimestamp = &at
		case "-old":
			p.Annotations[batchv1.KeyJobVersion] = fmt.Sprint(j.Status.Version - 1)
		default:
			var code int32
			fmt.Sscan(more, &code)
			set(p, p.Status.Phase, code)
		}
	}
	return p
}

// set sets the phase of a Pod, as a kubelet does.
func set(p *corev1.Pod, phase corev1.PodPhase, code int32) {
	p.Status.Phase = phase
	s := corev1.ContainerStatus{Name: "main", Ready: phase == corev1.PodRunning}
	if hasEnded(p) {
		s.State.Terminated = &corev1.ContainerStateTerminated{ExitCode: code, FinishedAt: metav1.NewTime(t0)}
	}
	if phase == corev1.PodPending {
		p.Status.ContainerStatuses = nil
		return
	}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{s}
}

// newInput returns the input for a Job and Pods that are parsed by pod.
func newInput(j *batchv1.Job, pods ...string) Input {
	w := Input{Job: j}
	for _, words := range pods {
		w.Pods = append(w.Pods, pod(j, words))
	}
	w.LostReplicas = LostReplicas(j, w.Pods, nil)
	return w
}

// names returns the names of Pods without their common prefix, in their order.
func names(pods []*corev1.Pod) string {
	var all []string
	for _, p := range pods {
		task, index := taskOf(p)
		all = append(all, fmt.Sprintf("%s%d", task, index))
	}
	return strings.Join(all, " ")
}
