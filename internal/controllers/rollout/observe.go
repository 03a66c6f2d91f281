package rollout

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/jobrevision"
	"k8s4r.io/k8s4r/internal/core/naming"
	"k8s4r.io/k8s4r/internal/core/revision"
	"k8s4r.io/k8s4r/internal/core/rollout"
)

// observe reads the input of Plan. It returns nil if the Rollout was deleted or the cache is stale.
func (c *Controller) observe(ctx context.Context, k types.NamespacedName) (*Input, error) {
	var r v1alpha1.Rollout
	err := c.Get(ctx, k, &r)
	if apierrors.IsNotFound(err) {
		c.expect.ForgetOwner(c.memory.ForgetObject(k))
		return nil, nil
	}
	if err != nil || r.DeletionTimestamp != nil || c.expect.IsStale(r.UID, r.ResourceVersion) {
		return nil, err
	}
	w := &Input{Rollout: &r}
	c.memory.Update(k, r.UID, func(m *memory) {
		w.LastStatus, w.ObservedSince, w.ReturnedAt = m.lastStatus, m.sightings.since, m.sightings.returnedAt
	})
	if r.Spec.Target.IsAgent() {
		return w, c.observeAgents(ctx, w)
	}
	return w, c.observeJob(ctx, w)
}

// observeJob reads the input of Plan for a Rollout of a Job.
func (c *Controller) observeJob(ctx context.Context, w *Input) error {
	r, k := w.Rollout, client.ObjectKeyFromObject(w.Rollout)
	var err error
	if w.Job, err = c.getJob(ctx, r); err != nil {
		return err
	}
	if w.Newer, err = c.findNewer(ctx, w); err != nil {
		return err
	}
	if !w.needsRevisions() {
		c.memory.Update(k, r.UID, func(m *memory) { m.dropObserved(c.Now()) })
		return nil
	}
	templates, err := c.readRevisions(ctx, w)
	if err != nil || w.Target == nil || !countsUnits(r) && r.Status.Phase != v1alpha1.RolloutComplete {
		return err
	}
	return c.observeUnits(ctx, w, templates)
}

// needsRevisions reports whether the next status depends on the revisions of the Job.
func (w *Input) needsRevisions() bool {
	r := w.Rollout
	if w.Job == nil || w.Newer != "" || isSuperseded(r) || r.Status.Phase == v1alpha1.RolloutReverted {
		return false
	}
	return jobrevision.KeepsRevisions(w.Job.Spec.Type) && mayChangeTo(r, w.Job) && !w.hasTooManyUnits()
}

// hasTooManyUnits reports whether the Job has so many replicas that they are not counted.
func (w *Input) hasTooManyUnits() bool { return rollout.CountReplicas(w.Job) > rollout.MaxReplicas }

// dropObserved drops what only a Rollout needs that still counts units.
func (m *memory) dropObserved(now time.Time) {
	m.revisions, m.fleet, m.sightings = revisionCache{}, fleetCache{}, newSightings(now)
}

// getJob returns the Job of a Rollout, or nil.
func (c *Controller) getJob(ctx context.Context, r *v1alpha1.Rollout) (*v1alpha1.Job, error) {
	var j v1alpha1.Job
	err := c.Get(ctx, types.NamespacedName{Namespace: r.Namespace, Name: r.Spec.Target.Name}, &j, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get job %s: %w", r.Spec.Target.Name, err)
	}
	return &j, nil
}

// findNewer returns the name of the Rollout that decides for the Job instead of this one, or "".
func (c *Controller) findNewer(ctx context.Context, w *Input) (string, error) {
	if w.Job == nil {
		return "", nil
	}
	var all v1alpha1.RolloutList
	err := c.List(ctx, &all, client.InNamespace(w.Job.Namespace), client.MatchingFields{indexTarget: w.Job.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return "", fmt.Errorf("list rollouts: %w", err)
	}
	if r := rollout.FindEffective(all.Items, w.Job); r != nil && r.UID != w.Rollout.UID && rollout.IsNewer(r, w.Rollout) {
		return r.Name, nil
	}
	return "", nil
}

// revisionCache is what was read of a Job's revisions.
type revisionCache struct {
	version revisionVersion
	content revisions
}

// revisionVersion identifies the inputs from which a revisionCache was computed.
type revisionVersion struct {
	job             types.UID
	generation      int64
	target, current int64 // numbers of revisions
}

// revisions are the two revisions that a Rollout compares. Their content never changes.
type revisions struct {
	target, current Hashes
	targetName      string
	// templates are the groups of the Job with the content of its current revision.
	templates []v1alpha1.TaskGroupTemplate
}

// readRevisions reads the revisions of a Rollout and of its Job, and returns the groups as the Job runs them.
// It reads them past the cache, which may lack one that the Job's status names, and only when the Job has changed.
func (c *Controller) readRevisions(ctx context.Context, w *Input) ([]v1alpha1.TaskGroupTemplate, error) {
	is := revisionVersion{w.Job.UID, w.Job.Generation, wantedRevision(w.Rollout, w.Job), w.Job.Status.CurrentRevision}
	k := client.ObjectKeyFromObject(w.Rollout)
	var last revisionCache
	c.memory.Update(k, w.Rollout.UID, func(m *memory) { last = m.revisions })
	found := last.content
	if last.version != is || found.target == nil || found.current == nil {
		all, err := c.listRevisions(ctx, w.Job)
		if err != nil {
			return nil, err
		}
		for i := range all {
			w.Revisions = append(w.Revisions, all[i].Revision)
		}
		if found, err = compareRevisions(w.Job, all, is.target, is.current); err != nil {
			return nil, err
		}
		c.memory.Update(k, w.Rollout.UID, func(m *memory) { m.revisions = revisionCache{is, found} })
	}
	w.Target, w.Current, w.TargetName = found.target, found.current, found.targetName
	return found.templates, nil
}

// listRevisions returns the revisions of a Job by number.
func (c *Controller) listRevisions(ctx context.Context, j *v1alpha1.Job) ([]appsv1.ControllerRevision, error) {
	var list appsv1.ControllerRevisionList
	err := c.Live.List(ctx, &list, client.InNamespace(j.Namespace), client.MatchingLabels{v1alpha1.LabelPrefixedJob: naming.LabelValue(j.Name)})
	if err != nil {
		return nil, fmt.Errorf("list revisions of job %s: %w", j.Name, err)
	}
	own := slices.DeleteFunc(list.Items, func(r appsv1.ControllerRevision) bool { return !jobrevision.IsOfJob(&r, j) })
	slices.SortFunc(own, func(a, b appsv1.ControllerRevision) int { return int(a.Revision - b.Revision) })
	return own, nil
}

// compareRevisions returns the revisions with these numbers, as far as they exist.
func compareRevisions(j *v1alpha1.Job, all []appsv1.ControllerRevision, target, current int64) (revisions, error) {
	var out revisions
	for i := range all {
		if n := all[i].Revision; n != target && n != current {
			continue
		}
		content, err := jobrevision.Decode(&all[i])
		if err != nil {
			return out, err
		}
		hashes, templates := hashGroups(j, &content)
		if all[i].Revision == target {
			out.target, out.targetName = hashes, all[i].Name
		}
		if all[i].Revision == current {
			out.current, out.templates = hashes, templates
		}
	}
	return out, nil
}

// hashGroups returns the groups of the Job with the content of a revision, and the hashes of their tasks. Groups
// that the Job does not have keep their content alone.
func hashGroups(j *v1alpha1.Job, content *jobrevision.JobContent) (Hashes, []v1alpha1.TaskGroupTemplate) {
	hashes, templates := Hashes{}, make([]v1alpha1.TaskGroupTemplate, len(j.Spec.TaskGroups))
	for i := range content.TaskGroups {
		g := &content.TaskGroups[i]
		var t v1alpha1.TaskGroupTemplate
		at := slices.IndexFunc(j.Spec.TaskGroups, func(d v1alpha1.TaskGroupDefinition) bool { return d.Name == g.Name })
		if at >= 0 {
			t = j.Spec.TaskGroups[at].TaskGroupTemplate
		}
		g.ApplyTo(&t)
		hashes[g.Name] = revision.TaskRevisions(&t)
		if at >= 0 {
			templates[at] = t
		}
	}
	return hashes, templates
}
