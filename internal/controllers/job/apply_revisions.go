package job

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/kit"
)

// storeRevision creates or updates the revision of the definition. stored is false if the status must not
// name it yet. again reports that its name is taken and the next plan uses another one.
func (c *Controller) storeRevision(ctx context.Context, j *v1alpha1.Job, actions RevisionActions) (stored, again bool, err error) {
	if actions.Create != nil {
		return c.createRevision(ctx, j, actions.Create)
	}
	if actions.Update == nil {
		return true, false, nil
	}
	r := actions.Update
	err = c.Update(ctx, r)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return false, false, nil // the watch event triggers another plan
	}
	if err != nil {
		return false, false, fmt.Errorf("update revision %s: %w", r.Name, err)
	}
	c.revisionWrites.RecordWrite(r.UID, r.ResourceVersion)
	return true, false, nil
}

func (c *Controller) createRevision(ctx context.Context, j *v1alpha1.Job, r *appsv1.ControllerRevision) (stored, again bool, err error) {
	name := r.Name
	c.revisionWrites.ExpectCreate(j.UID, name)
	err = c.Create(ctx, r)
	if err == nil {
		return true, false, nil
	}
	if apierrors.IsAlreadyExists(err) {
		again, err = c.adoptRevision(ctx, j, r)
		return false, again, err
	}
	c.revisionWrites.ObserveCreate(j.UID, name)
	return false, false, fmt.Errorf("create revision %s: %w", name, err)
}

// adoptRevision handles a name that is taken. The same revision of this job is expected until the cache
// shows it, with the number that it has.
func (c *Controller) adoptRevision(ctx context.Context, j *v1alpha1.Job, r *appsv1.ControllerRevision) (again bool, err error) {
	existing := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: j.Namespace, Name: r.Name}}
	owned, err := kit.ReadExisting(ctx, c.Live, j, existing)
	if owned && err == nil && bytes.Equal(existing.Data.Raw, r.Data.Raw) {
		return false, nil
	}
	c.revisionWrites.ObserveCreate(j.UID, r.Name)
	if err != nil {
		return false, err
	}
	var known bool
	c.updateMemory(j, func(m *memory) {
		known, m.takenRevisionNames = m.takenRevisionNames[r.Name], addName(m.takenRevisionNames, r.Name)
	})
	if known {
		return false, fmt.Errorf("create revision %s: the name is used by an object of another owner; delete that ControllerRevision", r.Name)
	}
	return true, nil
}

// deleteRevisions deletes these versions of revisions.
func (c *Controller) deleteRevisions(ctx context.Context, revisions []*appsv1.ControllerRevision) error {
	var errs []error
	for _, r := range revisions {
		c.revisionWrites.ForgetOwner(r.UID)
		err := c.Delete(ctx, r, client.Preconditions{UID: &r.UID, ResourceVersion: &r.ResourceVersion})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			errs = append(errs, fmt.Errorf("delete revision %s: %w", r.Name, err))
		}
	}
	return errors.Join(errs...)
}

// keepRevisions leaves out of the status what is about a revision that was not stored.
func keepRevisions(s, was *v1alpha1.JobStatus) {
	if s != nil {
		s.ObservedGeneration, s.CurrentRevision, s.UpdateRevision = was.ObservedGeneration, was.CurrentRevision, was.UpdateRevision
	}
}
