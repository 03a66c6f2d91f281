package job

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/kit"
	"k8s4r.io/k8s4r/internal/core/jobrevision"
	"k8s4r.io/k8s4r/internal/core/rollout"
)

// The bounds of spec.revisionHistoryLimit, as the API type has them.
const (
	defaultHistoryLimit = 10
	maxHistoryLimit     = 100
)

// annotationChangeCause is the reason of a change, as kubectl rollout history shows it.
const annotationChangeCause = "kubernetes.io/change-cause"

// RevisionActions are the writes of revisions.
type RevisionActions struct {
	// Create is the revision of a new definition, or nil.
	Create *appsv1.ControllerRevision
	// Update is the existing revision of the definition with its new number or cause, or nil.
	Update *appsv1.ControllerRevision
	// Delete are revisions beyond spec.revisionHistoryLimit.
	Delete []*appsv1.ControllerRevision
}

// revisionPlan is the part of a plan that is about revisions.
type revisionPlan struct {
	// current and update are the numbers for the status.
	current, update int64
	// all are the revisions after the actions, newest first.
	all []*appsv1.ControllerRevision
	// content is that of the current revision. It is nil if the groups follow the spec, or if the revision
	// is not known.
	content *jobrevision.JobContent
	actions RevisionActions
}

// planRevisions stores the job's definition as a revision, and decides which one is current.
func (p *plan) planRevisions() {
	r, s := &p.revisions, &p.Job.Status
	r.current, r.update = s.CurrentRevision, s.UpdateRevision
	if !jobrevision.KeepsRevisions(p.Job.Spec.Type) {
		return
	}
	r.all = slices.Clone(p.Revisions)
	slices.SortFunc(r.all, func(a, b *appsv1.ControllerRevision) int { return cmp.Compare(b.Revision, a.Revision) })
	p.followRollout()
	stores := !p.AwaitsRevisions && !hasEnded(p.Job)
	if stores {
		p.storeDefinition()
	}
	switch {
	case rollout.IsUsedBy(p.Job):
		p.recoverCurrent()
		r.content = r.decode(r.current)
	case stores:
		r.current = r.update
	}
	if stores {
		p.collectGarbage()
	}
}

// followRollout makes the revision of a complete Rollout the current one. A Rollout that is complete since
// before the current revision came, with the strategy Immediate, changes nothing.
func (p *plan) followRollout() {
	if !rollout.IsUsedBy(p.Job) {
		return
	}
	r := &p.revisions
	e := rollout.FindEffective(p.Rollouts, p.Job)
	if e == nil || e.Status.Phase != v1alpha1.RolloutComplete || e.Status.Revision == r.current || r.find(e.Status.Revision) == nil {
		return
	}
	if e.Status.Revision > r.current || e.Status.FromRevision == r.current {
		p.out.Reasons = append(p.out.Reasons, fmt.Sprintf("revision %d is current: Rollout %s is complete", e.Status.Revision, e.Name))
		r.current = e.Status.Revision
	}
}

// storeDefinition finds the revision of the spec, or adds one. A stored revision of equal content gets the
// next number, unless a Rollout refers to the one that it has.
func (p *plan) storeDefinition() {
	r := &p.revisions
	data, err := jobrevision.ContentOf(&p.Job.Spec).Encode()
	if err != nil { // cannot happen for API types
		p.out.Reasons = append(p.out.Reasons, "encode the definition: "+err.Error())
		return
	}
	next := max(p.Job.Status.CurrentRevision, p.Job.Status.UpdateRevision)
	if len(r.all) > 0 {
		next = max(next, r.all[0].Revision)
	}
	i := findContent(r.all, data)
	if i < 0 {
		r.update = next + 1
		r.actions.Create = newRevision(p.Job, data, r.update, p.TakenRevisionNames)
		r.all = slices.Insert(r.all, 0, r.actions.Create)
		p.out.Reasons = append(p.out.Reasons, fmt.Sprintf("create revision %d", r.update))
		return
	}
	number := r.all[i].Revision
	if number != p.Job.Status.UpdateRevision && number != next && !p.isUsedByRollout(number) {
		number = next + 1
	}
	r.update = number
	p.updateRevision(i, number)
}

// updateRevision gives a stored revision its number and the cause of the last change.
func (p *plan) updateRevision(i int, number int64) {
	r := &p.revisions
	stored, cause := r.all[i], p.Job.Annotations[annotationChangeCause]
	if stored.Revision == number && (cause == "" || stored.Annotations[annotationChangeCause] == cause) {
		return
	}
	if stored.Revision == r.current {
		r.current = number
	}
	p.out.Reasons = append(p.out.Reasons, fmt.Sprintf("update revision %d: number %d, cause %q", stored.Revision, number, cause))
	changed := stored.DeepCopy()
	changed.Revision = number
	setChangeCause(changed, cause)
	r.actions.Update = changed
	r.all = slices.Insert(slices.Delete(r.all, i, i+1), 0, changed)
}

// isUsedByRollout reports whether a Rollout of the job refers to a revision: this one is then kept, with its
// number. A Rollout that has ended needs no way back.
func (p *plan) isUsedByRollout(number int64) bool {
	return slices.ContainsFunc(p.Rollouts, func(r v1alpha1.Rollout) bool {
		switch r.Status.Phase {
		case v1alpha1.RolloutSuperseded:
			return false
		case v1alpha1.RolloutComplete, v1alpha1.RolloutReverted:
			return r.Status.Revision == number
		}
		return r.Status.Revision == number || r.Status.FromRevision == number
	})
}

// recoverCurrent finds the revision that the groups have, if there is no current one: for a new job, or
// because a user deleted it. If none is found, the groups keep what they have.
func (p *plan) recoverCurrent() {
	r := &p.revisions
	if p.AwaitsRevisions || len(p.Creating) > 0 || r.find(r.current) != nil {
		return
	}
	for _, stored := range r.all {
		if c := r.decode(stored.Revision); c != nil && p.groupsHave(c) {
			r.current = stored.Revision
			p.out.Reasons = append(p.out.Reasons, fmt.Sprintf("revision %d is current: the task groups have it", r.current))
			return
		}
	}
}

// groupsHave reports whether all existing groups have this content.
func (p *plan) groupsHave(c *jobrevision.JobContent) bool {
	for name, g := range p.Groups {
		of := c.FindGroup(name)
		if of == nil {
			return false
		}
		want := g.Spec.TaskGroupTemplate
		of.ApplyTo(&want)
		want.Meta = g.Spec.Meta // without Rollouts it does not have that of the job
		if !equality.Semantic.DeepEqual(&want, &g.Spec.TaskGroupTemplate) {
			return false
		}
	}
	return true
}

// collectGarbage deletes revisions beyond the limit. Those that the stored status names are kept until it
// is written again.
func (p *plan) collectGarbage() {
	r, s, limit := &p.revisions, &p.Job.Status, defaultHistoryLimit
	if l := p.Job.Spec.RevisionHistoryLimit; l != nil {
		limit = min(max(int(*l), 0), maxHistoryLimit)
	}
	used := []int64{r.current, r.update, s.CurrentRevision, s.UpdateRevision}
	for _, stored := range r.all {
		if slices.Contains(used, stored.Revision) || p.isUsedByRollout(stored.Revision) {
			continue
		}
		if limit--; limit < 0 {
			r.actions.Delete = append(r.actions.Delete, stored)
			p.out.Reasons = append(p.out.Reasons, fmt.Sprintf("delete revision %d", stored.Revision))
		}
	}
}

// setRevisions sets the revisions of a status. While the cache lacks one, the status stays that of an
// earlier generation.
func (p *plan) setRevisions(s *v1alpha1.JobStatus) {
	if p.AwaitsRevisions {
		p.requeueAt(p.now.Add(kit.ExpectationLifetime))
		return
	}
	s.ObservedGeneration = p.Job.Generation
	s.CurrentRevision, s.UpdateRevision = p.revisions.current, p.revisions.update
}

// wantedTemplate returns the definition of a group, which may exist. Its array stays what it was: Tasks of
// other indexes may exist. Admission refuses such a change.
func (p *plan) wantedTemplate(def *v1alpha1.TaskGroupDefinition, g *v1alpha1.TaskGroup) *v1alpha1.TaskGroupTemplate {
	want := def.TaskGroupTemplate
	if g != nil {
		want.Array = g.Spec.Array
	}
	if c := p.currentContent(def.Name, g); c != nil {
		c.ApplyTo(&want)
	}
	return &want
}

// currentContent returns what the tasks of a group run if that is not what the spec says, or nil. If the
// current revision is not known, an existing group keeps its content.
func (p *plan) currentContent(name string, g *v1alpha1.TaskGroup) *jobrevision.GroupContent {
	switch {
	case !rollout.IsUsedBy(p.Job):
		return nil
	case p.revisions.content != nil:
		return p.revisions.content.FindGroup(name)
	case g == nil:
		return nil
	}
	c := jobrevision.ContentOf(&v1alpha1.JobSpec{TaskGroups: []v1alpha1.TaskGroupDefinition{{Name: name, TaskGroupTemplate: g.Spec.TaskGroupTemplate}}})
	return &c.TaskGroups[0]
}

// find returns the revision with a number, or nil.
func (r *revisionPlan) find(number int64) *appsv1.ControllerRevision {
	for _, stored := range r.all {
		if stored.Revision == number {
			return stored
		}
	}
	return nil
}

// decode returns the content of the revision with a number. It returns nil if there is none.
func (r *revisionPlan) decode(number int64) *jobrevision.JobContent {
	stored := r.find(number)
	if stored == nil {
		return nil
	}
	c, err := jobrevision.Decode(stored)
	if err != nil {
		return nil
	}
	return &c
}

// findContent returns the index of the first revision with this content, or -1. The text may differ if an
// earlier version of the manager wrote it.
func findContent(all []*appsv1.ControllerRevision, data []byte) int {
	i := slices.IndexFunc(all, func(r *appsv1.ControllerRevision) bool { return bytes.Equal(r.Data.Raw, data) })
	if i >= 0 {
		return i
	}
	return slices.IndexFunc(all, func(r *appsv1.ControllerRevision) bool {
		c, err := jobrevision.Decode(r)
		if err != nil {
			return false
		}
		again, err := c.Encode()
		return err == nil && bytes.Equal(again, data)
	})
}
