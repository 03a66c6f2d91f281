package raycluster

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	"k8s4r.io/k8s4r/internal/controllers/kit"
	"k8s4r.io/k8s4r/internal/controllers/raycluster/build"
)

// Plan returns the actions for one cluster. Decisions are taken in KubeRay's order
// (docs/reference/kinds/raycluster.md), so that none depends on Pods that an earlier one removes.
func Plan(now time.Time, o Options, w Input) Actions {
	p := &plan{Input: w, now: now, opts: o, c: w.Cluster, batch: kit.NewBatch(maxBatch)}
	switch {
	case p.c.Spec.ManagedBy != nil && *p.c.Spec.ManagedBy != rayv1.ManagedByThis:
		return p.out // managed by another controller, which also writes the status
	case p.c.DeletionTimestamp != nil:
		p.planDeletion()
		return p.out
	}
	p.requeueAt(now.Add(o.Build.Requeue))
	p.out.Rejections = append(build.Validate(p.c), findGatedFields(o.Gates, p.c)...)
	if len(p.out.Rejections) > 0 {
		p.out.RequeueAt = time.Time{} // nothing to do until the spec changes
		return p.out
	}
	p.out.Warnings = build.FindWarnings(p.c)
	if p.addFinalizer() || !p.planObjects() {
		return p.out
	}
	p.planPods()
	return p.out
}

// maxBatch is the most worker Pods that one plan creates, unless a single replica has more. The Pods
// of a batch trigger the next plan.
const maxBatch = 500

// plan collects the actions while Plan runs.
type plan struct {
	Input
	now  time.Time
	opts Options
	c    *rayv1.RayCluster
	// deleting holds the Pods that this plan deletes.
	deleting map[types.UID]bool
	// plannedNames holds the names of the Pods that this plan creates.
	plannedNames map[string]bool
	// batch bounds the Pods that this plan creates.
	batch kit.Batch
	// index finds the Pods.
	index podIndex
	out   Actions
}

func (p *plan) requeueAt(at time.Time) {
	kit.SetEarliest(&p.out.RequeueAt, at)
}

func (p *plan) addReason(format string, args ...any) {
	p.out.Reasons = append(p.out.Reasons, fmt.Sprintf(format, args...))
}

// planPods decides which Pods are created, deleted and restamped.
func (p *plan) planPods() {
	p.deleting, p.plannedNames = map[types.UID]bool{}, map[string]bool{}
	p.index = newPodIndex(p.Pods)
	if len(p.Creating) > 0 || len(p.Deleting) > 0 {
		// If a Pod was created and deleted while the watch was interrupted, no event arrives.
		p.requeueAt(p.now.Add(kit.ExpectationLifetime))
	}
	for _, pod := range p.Pods {
		if pod.DeletionTimestamp != nil && lostAt(pod).After(p.now) {
			p.requeueAt(lostAt(pod))
		}
	}
	if p.planSuspension() || p.rejectExcess() || p.planRecreate() {
		return
	}
	p.planRestamp()
	if !p.planHead() {
		return
	}
	p.deleteStrayWorkers()
	for i := range p.c.Spec.WorkerGroupSpecs {
		p.planGroup(&p.c.Spec.WorkerGroupSpecs[i])
	}
	p.planRollingUpdate()
	p.orderHeadsLast()
}

// isPresent reports whether a Pod exists, including one that is terminating. A lost Pod does not
// count: no kubelet is left to report its end.
func (p *plan) isPresent(pod *corev1.Pod) bool {
	if pod.DeletionTimestamp == nil {
		return true
	}
	return lostAt(pod).After(p.now) && !p.MissingNodes[pod.Spec.NodeName]
}

// isLeaving reports whether a Pod is terminating or will be deleted by this plan.
func (p *plan) isLeaving(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil || p.Deleting[pod.UID] || p.deleting[pod.UID]
}

// deletePod plans the deletion of a Pod unless it is leaving already.
func (p *plan) deletePod(pod *corev1.Pod, d Deletion) {
	if p.isLeaving(pod) {
		return
	}
	p.deleting[pod.UID] = true
	d.Pod = pod
	p.out.Delete = append(p.out.Delete, d)
}

// removeAll plans the deletion of Pods with one event for all of them. It reports whether there
// were any to delete.
func (p *plan) removeAll(pods []*corev1.Pod, failed string, event Event) bool {
	before := len(p.out.Delete)
	for _, pod := range pods {
		p.deletePod(pod, Deletion{Failed: failed})
	}
	if len(p.out.Delete) == before {
		return false
	}
	p.out.Events = append(p.out.Events, event)
	return true
}

// orderHeadsLast orders the deletions of heads after all others. If the controller restarts in between,
// the annotations of the head still show that the other Pods must go.
func (p *plan) orderHeadsLast() {
	var heads, others []Deletion
	for _, d := range p.out.Delete {
		if isHead(d.Pod) {
			heads = append(heads, d)
		} else {
			others = append(others, d)
		}
	}
	p.out.Delete = slices.Concat(others, heads)
}
