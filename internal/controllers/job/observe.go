package job

import (
	"context"
	"fmt"
	"maps"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/jobrevision"
)

// observe reads the input of Plan. It returns nil if the job was deleted or the cache is
// stale.
func (c *Controller) observe(ctx context.Context, k types.NamespacedName) (*Input, error) {
	var j v1alpha1.Job
	err := c.Get(ctx, k, &j)
	if apierrors.IsNotFound(err) {
		uid := c.memory.ForgetObject(k)
		c.expect.ForgetOwner(uid)
		c.revisionWrites.ForgetOwner(uid)
		return nil, nil
	}
	if err != nil || c.expect.IsStale(j.UID, j.ResourceVersion) {
		return nil, err
	}
	var groups v1alpha1.TaskGroupList
	if err := c.List(ctx, &groups, client.InNamespace(k.Namespace), client.MatchingFields{indexOwner: string(j.UID)}); err != nil {
		return nil, fmt.Errorf("list task groups: %w", err)
	}
	w := &Input{Job: &j, Archives: c.Archives, Groups: map[string]*v1alpha1.TaskGroup{}}
	for i := range groups.Items {
		g := &groups.Items[i]
		w.Groups[g.Spec.GroupName] = g
		c.expect.ObserveCreate(j.UID, g.Name)
	}
	w.Creating = c.expect.PendingCreates(j.UID)
	if err := c.observeRevisions(ctx, w); err != nil {
		return nil, err
	}
	if w.AwaitedByFlow, err = c.isAwaitedByFlow(ctx, &j); err != nil {
		return nil, err
	}
	c.updateMemory(&j, func(m *memory) {
		w.TakenNames, w.TakenRevisionNames, w.LastStatus = maps.Clone(m.takenNames), maps.Clone(m.takenRevisionNames), m.lastStatus
	})
	return w, nil
}

// observeRevisions reads the revisions of a job, and the Rollouts that change it.
func (c *Controller) observeRevisions(ctx context.Context, w *Input) error {
	j := w.Job
	if !jobrevision.KeepsRevisions(j.Spec.Type) {
		return nil
	}
	var stored appsv1.ControllerRevisionList
	if err := c.List(ctx, &stored, client.InNamespace(j.Namespace), client.MatchingFields{indexOwner: string(j.UID)}); err != nil {
		return fmt.Errorf("list revisions: %w", err)
	}
	for i := range stored.Items {
		r := &stored.Items[i]
		w.Revisions = append(w.Revisions, r)
		c.revisionWrites.ObserveCreate(j.UID, r.Name)
		w.AwaitsRevisions = c.revisionWrites.IsStale(r.UID, r.ResourceVersion) || w.AwaitsRevisions
	}
	w.AwaitsRevisions = w.AwaitsRevisions || len(c.revisionWrites.PendingCreates(j.UID)) > 0
	var rollouts v1alpha1.RolloutList
	if err := c.List(ctx, &rollouts, client.InNamespace(j.Namespace), client.MatchingFields{indexTarget: j.Name}); err != nil {
		return fmt.Errorf("list rollouts: %w", err)
	}
	w.Rollouts = rollouts.Items
	return nil
}

// isAwaitedByFlow reports whether the job is a step of a flow that has not recorded its
// end yet. Flows that are deleted or being deleted do not count.
func (c *Controller) isAwaitedByFlow(ctx context.Context, j *v1alpha1.Job) (bool, error) {
	owner := metav1.GetControllerOf(j)
	expires := j.Spec.TTLSecondsAfterFinished != nil && j.Status.CompletedAt != nil
	if !expires || owner == nil || owner.Kind != "JobFlow" || owner.APIVersion != flowv1.GroupVersion.String() {
		return false, nil
	}
	var f flowv1.JobFlow
	if err := c.Get(ctx, client.ObjectKey{Namespace: j.Namespace, Name: owner.Name}, &f); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return f.UID == owner.UID && f.DeletionTimestamp == nil && !f.Status.IsJobRecorded(j.Name, string(j.UID)), nil
}

// updateMemory calls f with the memory of a job.
func (c *Controller) updateMemory(j *v1alpha1.Job, f func(*memory)) {
	c.memory.Update(client.ObjectKeyFromObject(j), j.UID, f)
}

func newMemory(now time.Time) memory { return memory{lastStatus: now, takenNames: map[string]bool{}} }

// addName adds a name to a set, which may be nil.
func addName(to map[string]bool, name string) map[string]bool {
	if to == nil {
		to = map[string]bool{}
	}
	to[name] = true
	return to
}
