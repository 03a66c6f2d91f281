package raycluster

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	"k8s4r.io/k8s4r/internal/controllers/raycluster/build"
)

func (p *plan) strategy() rayv1.UpgradeType {
	if u := p.c.Spec.UpgradeStrategy; u != nil && u.Type != nil {
		return *u.Type
	}
	return rayv1.UpgradeNone
}

// anyHead is a head that is there. Nil: none.
func (p *plan) anyHead() *corev1.Pod {
	for _, pod := range p.Pods {
		if isHead(pod) && p.counts(pod) {
			return pod
		}
	}
	return nil
}

// foreign tells whether another version of the controller has made the head. It may
// have built it differently from the same spec.
func foreign(head *corev1.Pod) bool {
	v := head.Annotations[rayv1.AnnotationVersion]
	return v != "" && v != build.Version
}

// recreated deletes all Pods of a cluster whose spec has changed, where that is what
// the user wants. It tells whether that is all there is to decide.
func (p *plan) recreated() bool {
	head := p.anyHead()
	if p.strategy() != rayv1.UpgradeRecreate || head == nil || foreign(head) {
		return false
	}
	was := head.Annotations[rayv1.AnnotationRecreateHash]
	if was == "" || was == build.RecreateHash(p.c) || p.keepsHead(head) {
		return false
	}
	if p.removeAll(p.Pods, rayv1.ReasonFailedDeleteAllPods, p.deletedAll("the spec has changed, and upgradeStrategy is Recreate")) {
		p.why("recreate: delete all Pods")
	}
	p.out.Forget = true
	p.headsLast()
	return true
}

// restamp takes over the Pods of another version of the controller as they are: what
// they were made of is what the spec says now.
func (p *plan) restamp() {
	if p.strategy() == rayv1.UpgradeNone {
		return
	}
	for _, pod := range p.Pods {
		if p.leaves(pod) || !p.counts(pod) {
			continue
		}
		stamp := map[string]string{}
		hash := p.hash(pod)
		if p.strategy() == rayv1.UpgradeRollingUpdate && hash != "" && pod.Annotations[rayv1.AnnotationTemplateHash] == "" {
			stamp[rayv1.AnnotationTemplateHash] = hash
		}
		if isHead(pod) && foreign(pod) {
			stamp[rayv1.AnnotationVersion] = build.Version
			stamp[rayv1.AnnotationRecreateHash] = build.RecreateHash(p.c)
			stamp[rayv1.AnnotationTemplateHash] = hash
		}
		if isHead(pod) && stamp[rayv1.AnnotationTemplateHash] != "" {
			stamp[rayv1.AnnotationSharedHash] = build.SharedHash(p.c)
		}
		if len(stamp) > 0 {
			p.why("take over Pod %s as it is", pod.Name)
			p.out.Restamp = append(p.out.Restamp, Restamp{pod, stamp})
		}
	}
}

// hash of the template that a Pod would be made of now. Empty: it would not be.
func (p *plan) hash(pod *corev1.Pod) string {
	if isHead(pod) {
		return build.HeadHash(p.c)
	}
	for i := range p.c.Spec.WorkerGroupSpecs {
		if g := &p.c.Spec.WorkerGroupSpecs[i]; g.GroupName == pod.Labels[rayv1.LabelGroup] {
			return build.GroupHash(p.c, g)
		}
	}
	return ""
}

// rollShare of the workers of a group may be out of work while they are replaced.
const rollShare = 4

// roll replaces Pods of an older template where that is what the user wants: the
// workers a few at a time, and the head when they are done. A head that no new worker
// could work with goes before them: they would wait for it, and it for them, for ever.
func (p *plan) roll() {
	if p.strategy() != rayv1.UpgradeRollingUpdate {
		return
	}
	head := p.anyHead()
	old := head != nil && !foreign(head) && outdated(head, build.HeadHash(p.c))
	if old && p.keepsHead(head) {
		if p.disagrees(head) {
			return // no worker that is made now could work with it
		}
		old = false
	}
	if old && (!ready(head) || p.disagrees(head)) {
		p.rollHead(head)
		return
	}
	done := true
	for i := range p.c.Spec.WorkerGroupSpecs {
		g := &p.c.Spec.WorkerGroupSpecs[i]
		if !p.rollGroup(g, build.GroupHash(p.c, g)) {
			done = false
		}
	}
	if old && done {
		p.rollHead(head)
	}
}

// keepsHead tells, also to the author of the spec, that an upgrade leaves the head
// alone: one that it deletes here, nothing would make anew.
func (p *plan) keepsHead(head *corev1.Pod) bool {
	if !p.lastHead() {
		return false
	}
	p.out.Warned = append(p.out.Warned, build.Invalid{Reason: build.InvalidSpec, Message: fmt.Sprintf(
		"spec.upgradeStrategy: the spec has changed, and head Pod %s stays as it is, since the annotation %s would leave the cluster without one; remove the annotation to upgrade the head",
		head.Name, rayv1.AnnotationDisableHeadRestart)})
	p.why("head Pod %s is not upgraded: %s", head.Name, rayv1.AnnotationDisableHeadRestart)
	return true
}

// disagrees tells whether a head was made for other workers than those that are made now.
func (p *plan) disagrees(head *corev1.Pod) bool {
	return head.Annotations[rayv1.AnnotationSharedHash] != build.SharedHash(p.c)
}

func (p *plan) rollHead(head *corev1.Pod) {
	p.why("replace head Pod %s: its template has changed", head.Name)
	p.remove(head, Deletion{
		Failed: rayv1.ReasonFailedDeleteHeadPod,
		Event:  deletedPod(ReasonDeletedHeadPod, "Deleted head Pod %s/%s: its template has changed", head),
	})
}

// outdated tells whether a Pod was made of another template. One that does not say is
// another controller's, and stays.
func outdated(pod *corev1.Pod, hash string) bool {
	was := pod.Annotations[rayv1.AnnotationTemplateHash]
	return was != "" && was != hash
}

// rollGroup tells whether all Pods of a group are of the present template and work.
func (p *plan) rollGroup(g *rayv1.WorkerGroupSpec, hash string) bool {
	units := p.units(g)
	replicas, _ := build.Desired(g)
	idle := int(replicas) - len(units) // those that are not there
	var old []unit
	for _, u := range units {
		switch {
		case u.leaves || !allReady(u.pods):
			idle++
			if !u.leaves && u.outdated(hash) {
				old = append(old, u)
				idle-- // it is replaced at no loss
			}
		case u.outdated(hash):
			old = append(old, u)
		}
	}
	room := max(1, int(replicas)/rollShare) - max(0, idle)
	slices.SortFunc(old, func(a, b unit) int { return compare(worthOfAll(a.pods), worthOfAll(b.pods)) })
	for _, u := range old[:min(len(old), max(0, room))] {
		p.why("replace %s: the template of group %s has changed", u.name(), g.GroupName)
		p.removeUnit(u, false, fmt.Sprintf("the template of group %s has changed", g.GroupName))
	}
	return len(old) == 0 && idle <= 0 && !p.waits(g)
}

func allReady(pods []*corev1.Pod) bool {
	return !slices.ContainsFunc(pods, func(pod *corev1.Pod) bool { return !ready(pod) })
}
