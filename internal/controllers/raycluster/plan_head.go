package raycluster

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	"k8s4r.io/k8s4r/internal/controllers/raycluster/build"
)

// head sees to it that there is one head. It tells whether to go on to the workers.
func (p *plan) head() bool {
	var heads []*corev1.Pod
	for _, pod := range p.Pods {
		if isHead(pod) && p.counts(pod) {
			heads = append(heads, pod)
		}
	}
	switch {
	case p.creatingLike(build.HeadNamePrefix(p.c)):
		return true // it does not show yet
	case len(heads) > 1:
		p.out.Fault = tooManyHeads(heads)
		p.why("%s", p.out.Fault)
		return false
	case len(heads) == 1:
		return p.judgeHead(heads[0])
	}
	if p.lastHead() {
		p.why("no head: %s", rayv1.AnnotationDisableHeadRestart)
		p.out.Fault = fmt.Sprintf("the head Pod is gone, and the annotation %s keeps it so", rayv1.AnnotationDisableHeadRestart)
		return false
	}
	p.createHead()
	return true
}

// lastHead tells whether no head would be made after the one that the cluster has, or
// had.
func (p *plan) lastHead() bool {
	return meta.IsStatusConditionTrue(p.c.Status.Conditions, rayv1.RayClusterProvisioned) && p.c.Annotations[rayv1.AnnotationDisableHeadRestart] == "true"
}

func tooManyHeads(heads []*corev1.Pod) string {
	names := make([]string, len(heads))
	for i, pod := range heads {
		names[i] = pod.Name
	}
	return fmt.Sprintf("%d head pods found [%s]. Please delete extra head pods", len(heads), strings.Join(names, " "))
}

// judgeHead deletes a head that will never work again. The workers then wait for the
// next one.
func (p *plan) judgeHead(head *corev1.Pod) bool {
	if p.leaves(head) || !unhealthy(head) {
		return true
	}
	if p.patience(head) {
		return true
	}
	p.why("delete head Pod %s: %s", head.Name, state(head))
	p.remove(head, Deletion{
		Event:  Event{corev1.EventTypeNormal, ReasonDeletedHeadPod, actionDelete, fmt.Sprintf("Deleted head Pod %s/%s; %s", head.Namespace, head.Name, state(head))},
		Failed: rayv1.ReasonFailedDeleteHeadPod, Retry: true,
	})
	return false
}

func (p *plan) createHead() {
	pod := build.HeadPod(&p.opts.Build, p.c)
	if pod.Name == "" {
		if pod.Name = p.free(pod.GenerateName, headSlot, 0); p.used(headSlot, pod.Name) {
			p.refill(headSlot)
			return
		}
	} else if p.held(pod.Name) {
		// It has one name for ever, and the Pod before it is not gone.
		p.out.Fault = fmt.Sprintf("the head Pod waits until Pod %s is gone, whose name it has", pod.Name)
		return
	}
	pod.GenerateName = ""
	p.create(pod)
}

// held tells whether a Pod that shows has this name.
func (p *plan) held(name string) bool {
	for _, pod := range p.Pods {
		if pod.Name == name {
			return true
		}
	}
	return false
}

func (p *plan) create(pod *corev1.Pod) {
	p.why("create %s Pod %s", pod.Labels[rayv1.LabelNodeType], pod.Name)
	p.named[pod.Name] = true
	p.out.Create = append(p.out.Create, pod)
}

// free is the name of a Pod, of those that nobody else holds.
func (p *plan) free(prefix string, s slot, host int) string {
	for salt := 0; ; salt++ {
		name := prefix + suffix(p.c.UID, s, host, p.Refilled[s], salt)
		if !p.named[name] && !p.Taken[name] {
			return name
		}
	}
}

// creatingLike tells whether a Pod was created whose name is this prefix, with or
// without a suffix, and does not show.
func (p *plan) creatingLike(prefix string) bool {
	for name := range p.Creating {
		rest, ok := strings.CutPrefix(name+"-", prefix)
		if ok && (rest == "" || len(rest) == suffixLength+1) {
			return true
		}
	}
	return false
}

// state of a Pod in the words of KubeRay's events.
func state(pod *corev1.Pod) string {
	ended := "nil"
	if t := rayEnded(pod); t != nil {
		ended = fmt.Sprintf("%s (exit code %d)", or(t.Reason, "Terminated"), t.ExitCode)
	}
	return fmt.Sprintf("Pod status: %s; Pod restart policy: %s; Ray container terminated status: %s", pod.Status.Phase, pod.Spec.RestartPolicy, ended)
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

func deletedPod(reason, format string, pod *corev1.Pod, more ...any) Event {
	return Event{corev1.EventTypeNormal, reason, actionDelete, fmt.Sprintf(format, append([]any{pod.Namespace, pod.Name}, more...)...)}
}
