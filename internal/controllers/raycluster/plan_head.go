package raycluster

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	"k8s4r.io/k8s4r/internal/controllers/raycluster/build"
)

// planHead plans for exactly one head. It reports whether to continue with the workers.
func (p *plan) planHead() bool {
	var heads []*corev1.Pod
	for _, pod := range p.Pods {
		if isHead(pod) && p.isPresent(pod) {
			heads = append(heads, pod)
		}
	}
	switch {
	case p.hasPendingCreate(build.HeadNamePrefix(p.c)):
		return true // the head was created and is not in the cache yet
	case len(heads) > 1:
		p.out.Problem = tooManyHeads(heads)
		p.addReason("%s", p.out.Problem)
		return false
	case len(heads) == 1:
		return p.deleteUnhealthyHead(heads[0])
	}
	if p.isHeadRestartDisabled() {
		p.addReason("no head: %s", rayv1.AnnotationDisableHeadRestart)
		p.out.Problem = fmt.Sprintf("the head Pod no longer exists, and the annotation %s disables its restart", rayv1.AnnotationDisableHeadRestart)
		return false
	}
	p.createHead()
	return true
}

// isHeadRestartDisabled reports whether the head is not recreated once it is gone: the cluster has been
// provisioned and the annotation disables restarts of the head.
func (p *plan) isHeadRestartDisabled() bool {
	return meta.IsStatusConditionTrue(p.c.Status.Conditions, rayv1.RayClusterProvisioned) && p.c.Annotations[rayv1.AnnotationDisableHeadRestart] == "true"
}

func tooManyHeads(heads []*corev1.Pod) string {
	names := make([]string, len(heads))
	for i, pod := range heads {
		names[i] = pod.Name
	}
	return fmt.Sprintf("%d head pods found [%s]. Please delete extra head pods", len(heads), strings.Join(names, " "))
}

// deleteUnhealthyHead deletes a head that cannot recover. It reports whether to continue with the workers;
// otherwise they wait for the next head.
func (p *plan) deleteUnhealthyHead(head *corev1.Pod) bool {
	if p.isLeaving(head) || !isUnhealthy(head) {
		return true
	}
	if p.shouldDelayDeletion(head) {
		return true
	}
	p.addReason("delete head Pod %s: %s", head.Name, describePodState(head))
	p.deletePod(head, Deletion{
		Event:  Event{corev1.EventTypeNormal, ReasonDeletedHeadPod, actionDelete, fmt.Sprintf("Deleted head Pod %s/%s; %s", head.Namespace, head.Name, describePodState(head))},
		Failed: rayv1.ReasonFailedDeleteHeadPod, Retry: true,
	})
	return false
}

func (p *plan) createHead() {
	pod := build.HeadPod(&p.opts.Build, p.c)
	if pod.Name == "" {
		if pod.Name = p.freePodName(pod.GenerateName, headSlot, 0); p.wasNameUsed(headSlot, pod.Name) {
			p.raiseGeneration(rayv1.HeadGroup)
			return
		}
	} else if p.isNameTaken(pod.Name) {
		// The name is fixed, and the previous Pod of that name still exists.
		p.out.Problem = fmt.Sprintf("the head Pod is created once the earlier Pod %s of the same name is deleted", pod.Name)
		return
	}
	pod.GenerateName = ""
	p.createPod(pod)
}

// isNameTaken reports whether an observed Pod has this name.
func (p *plan) isNameTaken(name string) bool {
	_, taken := p.index.names[name]
	return taken
}

// isNameTakenElsewhere reports whether an observed Pod of another slot has this name. Among 10,000
// Pods some derived names are equal.
func (p *plan) isNameTakenElsewhere(name string, s slot) bool {
	holder, taken := p.index.names[name]
	return taken && holder != s
}

func (p *plan) createPod(pod *corev1.Pod) {
	p.batch.Add(pod)
	p.addReason("create %s Pod %s", pod.Labels[rayv1.LabelNodeType], pod.Name)
	p.plannedNames[pod.Name] = true
	p.out.Create = append(p.out.Create, pod)
}

// freePodName returns the first derived name that is neither planned nor taken by another slot or
// owner.
func (p *plan) freePodName(prefix string, s slot, host int) string {
	for salt := 0; ; salt++ {
		name := prefix + nameSuffix(p.c.UID, s, host, p.Generations[s.group], salt)
		if !p.plannedNames[name] && !p.Taken[name] && !p.isNameTakenElsewhere(name, s) {
			return name
		}
	}
}

// hasPendingCreate reports whether a pending create has a name that is prefix, with or without a
// suffix.
func (p *plan) hasPendingCreate(prefix string) bool {
	for name := range p.Creating {
		rest, ok := strings.CutPrefix(name+"-", prefix)
		if ok && (rest == "" || len(rest) == suffixLength+1) {
			return true
		}
	}
	return false
}

// describePodState describes the state of a Pod in the format of KubeRay's events.
func describePodState(pod *corev1.Pod) string {
	ended := "nil"
	if t := rayEnded(pod); t != nil {
		ended = fmt.Sprintf("%s (exit code %d)", firstNonEmpty(t.Reason, "Terminated"), t.ExitCode)
	}
	return fmt.Sprintf("Pod status: %s; Pod restart policy: %s; Ray container terminated status: %s", pod.Status.Phase, pod.Spec.RestartPolicy, ended)
}

func firstNonEmpty(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

func newDeletedPodEvent(reason, format string, pod *corev1.Pod, more ...any) Event {
	return Event{corev1.EventTypeNormal, reason, actionDelete, fmt.Sprintf(format, append([]any{pod.Namespace, pod.Name}, more...)...)}
}
