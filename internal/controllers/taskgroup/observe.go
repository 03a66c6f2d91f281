package taskgroup

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/demand"
	"k8s4r.io/k8s4r/internal/controllers/progress"
	"k8s4r.io/k8s4r/internal/controllers/revision"
)

// observe reads what a decision about the group depends on. It returns nil
// when there is nothing to decide.
func (c *Controller) observe(ctx context.Context, k types.NamespacedName) (*World, error) {
	var g v1alpha1.TaskGroup
	err := c.Get(ctx, k, &g)
	if apierrors.IsNotFound(err) {
		c.Binder.Forget(k.Namespace, k.Name)
		c.expect.Forget(c.tally.forget(k))
		return nil, nil
	}
	if err != nil || c.expect.Stale(g.UID, g.ResourceVersion) {
		return nil, err
	}
	c.tally.know(k, g.UID)
	w := &World{Group: &g}
	if w.Job, err = c.job(ctx, &g); err != nil {
		return nil, err
	}
	if w.Fleet, err = c.fleet(ctx, &g, w.Job); err != nil {
		return nil, err
	}
	creating := c.expect.Creating(g.UID)
	c.tally.with(g.UID, func(m *members) { m.describe(w, creating) })
	return w, nil
}

// job is the group's own Job; a later one of the same name is not.
func (c *Controller) job(ctx context.Context, g *v1alpha1.TaskGroup) (*v1alpha1.Job, error) {
	var j v1alpha1.Job
	err := c.Get(ctx, types.NamespacedName{Namespace: g.Namespace, Name: g.Spec.JobName}, &j, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get job %s: %w", g.Spec.JobName, err)
	}
	for _, owner := range g.OwnerReferences {
		if owner.UID == j.UID {
			return &j, nil
		}
	}
	return nil, nil
}

// describe puts into w what the tally knows.
func (m *members) describe(w *World, creating map[string]bool) {
	g := w.Group
	m.define(g)
	w.Tasks, w.Idle, w.Next, w.Revisions = m.counts(), m.idle, m.next, m.wanted
	if w.system() || m.stale > 0 || m.next > demand.Count(g) || rolling(g) {
		w.Members = m.closer(demand.Count(g), w.system())
	}
	for name := range creating {
		if _, seen := m.cells[name]; !seen {
			w.Creating++
			if m.loose[name] {
				w.Idle++
			}
		}
	}
	if w.Job != nil {
		w.Failing = m.failedOn(blocklistAfter(w.Job))
		if blocked := slices.Concat(w.Failing, g.Status.BlockedRobots); len(blocked) > 0 && w.jobStarts() {
			w.Excused = m.excused(blocked)
		}
		if r := progress.Requeueing(w.Job, g); r != nil {
			w.ToPutBack = m.toPutBack(r)
		}
	}
	w.LastBound, w.LastStatus = m.lastBound, m.lastStatus
	w.Refused = m.askedAt == m.news+1
	w.Denied, w.RetryAt = m.denial.message, m.denial.retry
	w.TooLarge = m.tooLarge
	top := min(m.next, demand.Count(g))
	if m.next > top || len(m.slots)+w.Creating < top*g.Spec.Size() {
		w.Gaps = m.gaps(g, top, creating)
	}
}

// define takes in what the group asks for, once for each time that it changes.
// What was said against the old definition counts no more.
func (m *members) define(g *v1alpha1.TaskGroup) {
	if m.wanted != nil && m.generation == g.Generation {
		return
	}
	m.generation, m.wanted, m.tooLarge = g.Generation, revision.Wanted(&g.Spec.TaskGroupTemplate), tooLarge(g)
	m.batch, m.askedAt, m.denial = 1, 0, denial{}
	for name, c := range m.cells {
		m.add(c, -1)
		c.outdated = m.isOutdated(&c)
		m.cells[name] = c
		m.add(c, 1)
	}
}

// closer are the Tasks that need a closer look (World.Members).
func (m *members) closer(count int, all bool) []Member {
	var out []Member
	for name, c := range m.cells {
		if all || c.stale() || c.slot.index >= count || c.evict > 0 {
			out = append(out, c.member(name))
		}
	}
	slices.SortFunc(out, func(a, b Member) int {
		return cmp.Or(cmp.Compare(a.Index, b.Index), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// defaultBlocklistAfter is the number of tasks of a group that a robot must fail
// when the job does not say otherwise (docs/spec/job.md).
const defaultBlocklistAfter = 3

func blocklistAfter(j *v1alpha1.Job) int {
	if p := j.Spec.FailurePolicy; p != nil && p.BlocklistAfter != nil {
		return int(*p.BlocklistAfter)
	}
	return defaultBlocklistAfter
}

// gaps are replicas below top that lack tasks, at most maxAsk of them.
func (m *members) gaps(g *v1alpha1.TaskGroup, top int, creating map[string]bool) []Replica {
	var out []Replica
	for i := 0; i < top && len(out) < maxAsk; i++ {
		r := Replica{Index: i}
		for _, def := range g.Spec.Definitions() {
			if m.slots[slot{i, def.Name}] == 0 && !creating[taskName(g, i, def.Name, m.taken)] {
				r.Tasks = append(r.Tasks, def)
			}
		}
		if len(r.Tasks) > 0 {
			out = append(out, r)
		}
	}
	return out
}

// tooLarge measures each task once: all replicas are alike.
func tooLarge(g *v1alpha1.TaskGroup) string {
	for _, def := range g.Spec.Definitions() {
		if why := demand.TooLarge(&v1alpha1.TaskSpec{TaskDefinition: *def}); why != "" {
			return why
		}
	}
	return ""
}

// ofJob names the groups of a job.
func (c *Controller) ofJob(ctx context.Context, j client.Object) []reconcile.Request {
	var groups v1alpha1.TaskGroupList
	err := c.List(ctx, &groups, client.InNamespace(j.GetNamespace()), client.MatchingFields{indexJob: j.GetName()}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil // the cache has stopped, and with it the controller
	}
	out := make([]reconcile.Request, len(groups.Items))
	for i := range groups.Items {
		out[i].NamespacedName = client.ObjectKeyFromObject(&groups.Items[i])
	}
	return out
}

// whenStateChanges leaves out counts. What a job's spec says of robots may matter
// too.
func whenStateChanges() builder.Predicates {
	return builder.WithPredicates(predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*v1alpha1.Job), e.ObjectNew.(*v1alpha1.Job)
		return before.Status.State != after.Status.State || before.Generation != after.Generation
	}})
}
