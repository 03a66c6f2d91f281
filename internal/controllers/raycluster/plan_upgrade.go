package raycluster

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	"k8s4r.io/k8s4r/internal/controllers/raycluster/build"
)

func (p *plan) upgradeStrategy() rayv1.UpgradeType {
	if u := p.c.Spec.UpgradeStrategy; u != nil && u.Type != nil {
		return *u.Type
	}
	return rayv1.UpgradeNone
}

// anyHead returns a head that exists, or nil.
func (p *plan) anyHead() *corev1.Pod {
	for _, pod := range p.Pods {
		if isHead(pod) && p.isPresent(pod) {
			return pod
		}
	}
	return nil
}

// isFromOtherVersion reports whether another version of the controller created the head. It may
// have built a different Pod from the same spec.
func isFromOtherVersion(head *corev1.Pod) bool {
	v := head.Annotations[rayv1.AnnotationVersion]
	return v != "" && v != build.Version
}

// planRecreate deletes all Pods if the spec has changed and the strategy is Recreate. It reports
// whether the plan ends there.
func (p *plan) planRecreate() bool {
	head := p.anyHead()
	if p.upgradeStrategy() != rayv1.UpgradeRecreate || head == nil || isFromOtherVersion(head) {
		return false
	}
	was := head.Annotations[rayv1.AnnotationRecreateHash]
	if was == "" || was == build.RecreateHash(p.c) || p.shouldKeepHead(head) {
		return false
	}
	if p.removeAll(p.Pods, rayv1.ReasonFailedDeleteAllPods, p.newDeletedAllEvent("the spec has changed, and upgradeStrategy is Recreate")) {
		p.addReason("recreate: delete all Pods")
	}
	p.out.Forget = true
	p.orderHeadsLast()
	return true
}

// planRestamp adopts Pods of another controller, or of another version of this one, unchanged. It does
// so under every strategy: an edit that sets RollingUpdate and changes a template is then one that the
// Pods are older than.
func (p *plan) planRestamp() {
	for _, pod := range p.Pods {
		if p.isLeaving(pod) || !p.isPresent(pod) {
			continue
		}
		if stamp := p.adoptionStamp(pod); len(stamp) > 0 {
			p.addReason("adopt Pod %s unchanged", pod.Name)
			p.out.Restamp = append(p.out.Restamp, Restamp{pod, stamp})
		}
	}
}

// adoptionStamp returns the annotations that an adopted Pod lacks, or nil. A Pod gets no hash of a
// template that it was not created from.
func (p *plan) adoptionStamp(pod *corev1.Pod) map[string]string {
	hasHash, otherVersion := pod.Annotations[rayv1.AnnotationTemplateHash] != "", isHead(pod) && isFromOtherVersion(pod)
	if hasHash && !otherVersion {
		return nil
	}
	stamp := map[string]string{}
	if otherVersion {
		stamp[rayv1.AnnotationVersion] = build.Version
		stamp[rayv1.AnnotationRecreateHash] = build.RecreateHash(p.c)
	}
	if t := p.currentTemplate(pod); t == nil || !hasHash && !hasImagesOf(pod, t) {
		return stamp
	}
	stamp[rayv1.AnnotationTemplateHash] = p.currentTemplateHash(pod)
	if isHead(pod) {
		stamp[rayv1.AnnotationSharedHash] = build.SharedHash(p.c)
	}
	return stamp
}

// currentTemplate returns the template that the Pod would be created from now, or nil if its group is
// gone.
func (p *plan) currentTemplate(pod *corev1.Pod) *corev1.PodTemplateSpec {
	if isHead(pod) {
		return &p.c.Spec.HeadGroupSpec.Template
	}
	if g := p.groupOf(pod); g != nil {
		return &g.Template
	}
	return nil
}

// groupOf returns the worker group of a Pod, or nil if it is not in the spec.
func (p *plan) groupOf(pod *corev1.Pod) *rayv1.WorkerGroupSpec {
	for i := range p.c.Spec.WorkerGroupSpecs {
		if g := &p.c.Spec.WorkerGroupSpecs[i]; g.GroupName == pod.Labels[rayv1.LabelGroup] {
			return g
		}
	}
	return nil
}

// hasImagesOf reports whether the Pod has the images of the template. Other fields of a Pod of another
// controller cannot be compared: the API server and webhooks complete them.
func hasImagesOf(pod *corev1.Pod, t *corev1.PodTemplateSpec) bool {
	images := map[string]string{}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		images[c.Name] = c.Image
	}
	return !slices.ContainsFunc(slices.Concat(t.Spec.InitContainers, t.Spec.Containers), func(c corev1.Container) bool {
		return images[c.Name] != c.Image
	})
}

// currentTemplateHash returns the hash of the template that the Pod would be created from now. If
// its group is gone, it returns the empty string.
func (p *plan) currentTemplateHash(pod *corev1.Pod) string {
	if isHead(pod) {
		return build.HeadHash(p.c)
	}
	group := pod.Labels[rayv1.LabelGroup]
	if hash, known := p.index.templateHashes[group]; known {
		return hash
	}
	g := p.groupOf(pod)
	if g == nil {
		return ""
	}
	hash := build.GroupHash(p.c, g)
	p.index.templateHashes[group] = hash
	return hash
}

// rollShare limits the unavailable workers of a group during a rolling update: at most one in
// rollShare, and at least one.
const rollShare = 4

// planRollingUpdate replaces outdated Pods if the strategy is RollingUpdate: first the workers, a
// few at a time, then the head. A head that new workers cannot connect to goes first; otherwise the
// workers would wait for the head and the head for the workers.
func (p *plan) planRollingUpdate() {
	if p.upgradeStrategy() != rayv1.UpgradeRollingUpdate {
		return
	}
	head := p.anyHead()
	old := head != nil && !isFromOtherVersion(head) && p.isOutdated(head)
	if old && p.shouldKeepHead(head) {
		if p.isHeadOutdated(head) {
			return // new workers could not connect to it
		}
		old = false
	}
	if old && (!isReady(head) || p.isHeadOutdated(head)) {
		p.rollHead(head)
		return
	}
	done := true
	for i := range p.c.Spec.WorkerGroupSpecs {
		if !p.rollGroup(&p.c.Spec.WorkerGroupSpecs[i]) {
			done = false
		}
	}
	if old && done {
		p.rollHead(head)
	}
}

// shouldKeepHead reports whether an upgrade must leave the head alone, because it would not be
// recreated, and adds a warning for the author of the spec.
func (p *plan) shouldKeepHead(head *corev1.Pod) bool {
	if !p.isHeadRestartDisabled() {
		return false
	}
	p.out.Warnings = append(p.out.Warnings, build.Invalid{Reason: build.InvalidSpec, Message: fmt.Sprintf(
		"spec.upgradeStrategy: the spec has changed, but head Pod %s is not upgraded, because the annotation %s disables its restart; remove the annotation to upgrade the head",
		head.Name, rayv1.AnnotationDisableHeadRestart)})
	p.addReason("head Pod %s is not upgraded: %s", head.Name, rayv1.AnnotationDisableHeadRestart)
	return true
}

// isHeadOutdated reports whether the head does not match the workers that are created now.
func (p *plan) isHeadOutdated(head *corev1.Pod) bool {
	return head.Annotations[rayv1.AnnotationSharedHash] != build.SharedHash(p.c)
}

func (p *plan) rollHead(head *corev1.Pod) {
	p.addReason("replace head Pod %s: its template has changed", head.Name)
	p.deletePod(head, Deletion{
		Failed: rayv1.ReasonFailedDeleteHeadPod,
		Event:  newDeletedPodEvent(ReasonDeletedHeadPod, "Deleted head Pod %s/%s: its template has changed", head),
	})
}

// isOutdated reports whether a Pod was created from another template. An adopted Pod without a hash
// was, if it has other images.
func (p *plan) isOutdated(pod *corev1.Pod) bool {
	if hash := pod.Annotations[rayv1.AnnotationTemplateHash]; hash != "" {
		return hash != p.currentTemplateHash(pod)
	}
	t := p.currentTemplate(pod)
	return t != nil && !hasImagesOf(pod, t)
}

func (p *plan) isUnitOutdated(u unit) bool { return slices.ContainsFunc(u.pods, p.isOutdated) }

// rollGroup replaces outdated workers of a group. It reports whether all workers are current and
// ready.
func (p *plan) rollGroup(g *rayv1.WorkerGroupSpec) bool {
	units := p.presentUnits(g)
	replicas, _ := build.DesiredReplicas(g)
	idle := int(replicas) - len(units) // missing ones
	var old []unit
	for _, u := range units {
		switch {
		case u.leaves || !allReady(u.pods):
			idle++
			if !u.leaves && p.isUnitOutdated(u) {
				old = append(old, u)
				idle-- // it is unavailable already, so replacing it costs nothing
			}
		case p.isUnitOutdated(u):
			old = append(old, u)
		}
	}
	room := max(1, int(replicas)/rollShare) - max(0, idle)
	slices.SortFunc(old, func(a, b unit) int { return compareWorth(worthOfAll(a.pods), worthOfAll(b.pods)) })
	for _, u := range old[:min(len(old), max(0, room))] {
		p.addReason("replace %s: the template of group %s has changed", u.name(), g.GroupName)
		p.removeUnit(u, false, fmt.Sprintf("the template of group %s has changed", g.GroupName))
	}
	return len(old) == 0 && idle <= 0 && !p.hasUnseenPods(g)
}

func allReady(pods []*corev1.Pod) bool {
	return !slices.ContainsFunc(pods, func(pod *corev1.Pod) bool { return !isReady(pod) })
}
