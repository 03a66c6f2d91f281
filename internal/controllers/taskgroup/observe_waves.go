package taskgroup

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/jobrevision"
	"k8s4r.io/k8s4r/internal/core/naming"
	"k8s4r.io/k8s4r/internal/core/revision"
	"k8s4r.io/k8s4r/internal/core/rollout"
)

// targetCache holds the last decoded target definition of a group. Without it, each event of a Task would
// decode the revision again.
type targetCache struct {
	revision   types.UID // of the ControllerRevision; empty: nothing is cached
	generation int64     // of the group, from which all other fields of the template are
	template   *v1alpha1.TaskGroupTemplate
	revisions  map[string]string
}

// observeWaves reads what decides the definition of each Task if the Job has the strategy Rollout. It
// returns nil for other jobs.
func (c *Controller) observeWaves(ctx context.Context, g *v1alpha1.TaskGroup, j *v1alpha1.Job) (*Waves, error) {
	w := newWaves(g, j, nil)
	if w == nil {
		return nil, nil
	}
	var all v1alpha1.RolloutList
	err := c.List(ctx, &all, client.InNamespace(g.Namespace), client.MatchingFields{indexTarget: j.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("list rollouts: %w", err)
	}
	if w.Rollout = rollout.FindEffective(all.Items, j); w.Rollout == nil {
		return w, nil
	}
	stored, err := c.findRevision(ctx, j, w.Rollout.Status.Revision)
	if err != nil || stored == nil {
		return w, err
	}
	var cached targetCache
	c.counts.withGroup(g.UID, func(m *groupTasks) { cached = m.target })
	if cached.revision != stored.UID || cached.generation != g.Generation {
		if cached, err = decodeTarget(g, stored); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "the Rollout changes no tasks", "rollout", w.Rollout.Name)
			return w, nil // a retry would not help
		}
		c.counts.withGroup(g.UID, func(m *groupTasks) { m.target = cached })
	}
	w.Target, w.TargetRevisions, w.targetUID = cached.template, cached.revisions, cached.revision
	return w, nil
}

// findRevision returns the revision of a Job with this number, or nil.
func (c *Controller) findRevision(ctx context.Context, j *v1alpha1.Job, number int64) (*appsv1.ControllerRevision, error) {
	var all appsv1.ControllerRevisionList
	labels := client.MatchingLabels{v1alpha1.LabelPrefixedJob: naming.LabelValue(j.Name)}
	if err := c.List(ctx, &all, client.InNamespace(j.Namespace), labels, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list revisions: %w", err)
	}
	for i := range all.Items {
		if r := &all.Items[i]; r.Revision == number && jobrevision.IsOfJob(r, j) {
			return r, nil
		}
	}
	return nil, nil
}

// decodeTarget returns the definition of the group in a revision. The template is nil if the revision has no
// such group.
func decodeTarget(g *v1alpha1.TaskGroup, stored *appsv1.ControllerRevision) (targetCache, error) {
	out := targetCache{revision: stored.UID, generation: g.Generation}
	content, err := jobrevision.Decode(stored)
	if err != nil {
		return targetCache{}, err
	}
	if of := content.FindGroup(g.Spec.GroupName); of != nil {
		template := g.Spec.TaskGroupTemplate
		of.ApplyTo(&template)
		out.template, out.revisions = &template, revision.TaskRevisions(&template)
	}
	return out, nil
}

// groupsOfRollout returns requests for the groups of the Job that a Rollout changes, if it changes one.
func (c *Controller) groupsOfRollout(ctx context.Context, o client.Object) []reconcile.Request {
	r := o.(*v1alpha1.Rollout)
	if r.Spec.Target.IsAgent() {
		return nil
	}
	return c.groupsOfJob(ctx, &v1alpha1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: r.Spec.Target.Name}})
}

// groupsOfRevision returns requests for the groups of the Job that a revision belongs to. A Rollout may be
// observed before its revision.
func (c *Controller) groupsOfRevision(ctx context.Context, o client.Object) []reconcile.Request {
	owner := metav1.GetControllerOf(o)
	if owner == nil || owner.Kind != jobKind {
		return nil
	}
	return c.groupsOfJob(ctx, &v1alpha1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: o.GetNamespace(), Name: owner.Name}})
}

const jobKind = "Job"

// onDecisionChange drops updates of a Rollout that only show its progress.
func onDecisionChange() builder.Predicates {
	return builder.WithPredicates(predicate.Funcs{UpdateFunc: isNewDecision})
}

func isNewDecision(e event.UpdateEvent) bool {
	return !rollout.HasSameDecisions(e.ObjectOld.(*v1alpha1.Rollout), e.ObjectNew.(*v1alpha1.Rollout))
}

// onNewRevision drops updates and deletions of revisions, except new numbers: the content never changes.
func onNewRevision() builder.Predicates {
	return builder.WithPredicates(predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			return e.ObjectOld.(*appsv1.ControllerRevision).Revision != e.ObjectNew.(*appsv1.ControllerRevision).Revision
		},
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	})
}
