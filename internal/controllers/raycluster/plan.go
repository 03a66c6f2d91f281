package raycluster

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	"k8s4r.io/k8s4r/internal/controllers/expect"
	"k8s4r.io/k8s4r/internal/controllers/raycluster/build"
)

// Plan decides what follows for one cluster. The order of decisions is KubeRay's
// (docs/spec/raycluster.md), so that none is taken on Pods that an earlier one removes.
func Plan(now time.Time, o Options, w World) Steps {
	p := &plan{World: w, now: now, opts: o, c: w.Cluster}
	switch {
	case p.c.Spec.ManagedBy != nil && *p.c.Spec.ManagedBy != rayv1.ManagedByThis:
		return p.out // another's: not even its status is ours
	case p.c.DeletionTimestamp != nil:
		p.end()
		return p.out
	}
	p.wake(now.Add(o.Build.Requeue))
	if p.out.Refused = build.Validate(p.c); len(p.out.Refused) > 0 {
		p.out.WakeAt = time.Time{} // only another spec helps
		return p.out
	}
	p.out.Warned = build.Warn(p.c)
	if p.addFinalizer() || !p.objects() {
		return p.out
	}
	p.pods()
	return p.out
}

// plan is a decision in the making.
type plan struct {
	World
	now  time.Time
	opts Options
	c    *rayv1.RayCluster
	// going are Pods that this plan deletes.
	going map[types.UID]bool
	// named are Pods that this plan creates.
	named map[string]bool
	out   Steps
}

func (p *plan) wake(at time.Time) {
	if p.out.WakeAt.IsZero() || at.Before(p.out.WakeAt) {
		p.out.WakeAt = at
	}
}

func (p *plan) why(format string, args ...any) {
	p.out.Why = append(p.out.Why, fmt.Sprintf(format, args...))
}

// pods decides on the Pods.
func (p *plan) pods() {
	p.going, p.named = map[types.UID]bool{}, map[string]bool{}
	if len(p.Creating) > 0 || len(p.Deleting) > 0 {
		// Of a Pod that came and went while the watch was cut off no word comes.
		p.wake(p.now.Add(expect.Lifetime))
	}
	for _, pod := range p.Pods {
		if pod.DeletionTimestamp != nil && lostAt(pod).After(p.now) {
			p.wake(lostAt(pod))
		}
	}
	if p.suspended() || p.recreated() {
		return
	}
	p.restamp()
	if !p.head() {
		return
	}
	p.strays()
	for i := range p.c.Spec.WorkerGroupSpecs {
		p.group(&p.c.Spec.WorkerGroupSpecs[i])
	}
	p.roll()
	p.headsLast()
}

// counts tells whether a Pod is there, perhaps on its way out. One that is lost is
// not: nobody will ever say that it has ended.
func (p *plan) counts(pod *corev1.Pod) bool {
	if pod.DeletionTimestamp == nil {
		return true
	}
	return lostAt(pod).After(p.now) && !p.NoNode[pod.Spec.NodeName]
}

// leaves tells whether a Pod is on its way out, or will be.
func (p *plan) leaves(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil || p.Deleting[pod.UID] || p.going[pod.UID]
}

// remove deletes a Pod, unless it is on its way out already.
func (p *plan) remove(pod *corev1.Pod, d Deletion) {
	if p.leaves(pod) {
		return
	}
	p.going[pod.UID] = true
	d.Pod = pod
	p.out.Delete = append(p.out.Delete, d)
}

// removeAll deletes Pods, with one event about all of them. It tells whether there
// were any to delete.
func (p *plan) removeAll(pods []*corev1.Pod, failed string, say Event) bool {
	before := len(p.out.Delete)
	for _, pod := range pods {
		p.remove(pod, Deletion{Failed: failed})
	}
	if len(p.out.Delete) == before {
		return false
	}
	p.out.Said = append(p.out.Said, say)
	return true
}

// headsLast moves heads behind the others: what a head bears tells that the rest of
// the cluster is to go too, should the controller die in between.
func (p *plan) headsLast() {
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
