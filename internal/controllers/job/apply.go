package job

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/kit"
)

// apply creates groups before it writes the status, so that their tasks can start meanwhile. The revision
// comes first: the status names it, and an edit must not replace what the groups run before it is stored.
// again reports whether to reconcile again at once.
func (c *Controller) apply(ctx context.Context, j *v1alpha1.Job, actions Actions) (again bool, err error) {
	for _, why := range actions.Reasons {
		ctrl.LoggerFrom(ctx).V(1).Info(why)
	}
	stored, again, err := c.storeRevision(ctx, j, actions.Revisions)
	if !stored {
		keepRevisions(actions.Status, &j.Status)
		actions.Revisions.Delete = nil
	}
	errs := []error{err}
	for _, g := range actions.Create {
		taken, err := c.createGroup(ctx, j, g)
		again = again || taken
		errs = append(errs, err)
	}
	for _, g := range actions.Update {
		errs = append(errs, c.updateGroup(ctx, g))
	}
	errs = append(errs, c.writeStatus(ctx, j, actions), c.deleteRevisions(ctx, actions.Revisions.Delete))
	if actions.Delete {
		errs = append(errs, c.deleteJob(ctx, j))
	}
	return again, errors.Join(errs...)
}

// deleteJob deletes this version of the job. A job that was requeued meanwhile stays.
func (c *Controller) deleteJob(ctx context.Context, j *v1alpha1.Job) error {
	err := c.Delete(ctx, j, client.Preconditions{UID: &j.UID, ResourceVersion: &j.ResourceVersion}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete job %s: %w", j.Name, err)
	}
	return nil
}

// createGroup creates one group. nameTaken reports that an object of another owner has the
// name, so that the next plan must use another one.
func (c *Controller) createGroup(ctx context.Context, j *v1alpha1.Job, g *v1alpha1.TaskGroup) (nameTaken bool, err error) {
	name := g.Name
	c.expect.ExpectCreate(j.UID, name)
	err = c.Create(ctx, g)
	if err == nil {
		return false, nil
	}
	if apierrors.IsAlreadyExists(err) {
		return c.adoptGroup(ctx, j, name)
	}
	c.expect.ObserveCreate(j.UID, name)
	return false, fmt.Errorf("create task group %s: %w", name, err)
}

// updateGroup updates one group.
func (c *Controller) updateGroup(ctx context.Context, g *v1alpha1.TaskGroup) error {
	err := c.Update(ctx, g)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil // the watch event triggers another plan
	}
	if err != nil {
		return fmt.Errorf("update task group %s: %w", g.Name, err)
	}
	return nil
}

// adoptGroup handles a name that is taken. An existing group of this job counts as
// created, and is expected until the cache shows it.
func (c *Controller) adoptGroup(ctx context.Context, j *v1alpha1.Job, name string) (bool, error) {
	existing := &v1alpha1.TaskGroup{ObjectMeta: metav1.ObjectMeta{Namespace: j.Namespace, Name: name}}
	owned, err := kit.ReadExisting(ctx, c.Live, j, existing)
	if owned && err == nil {
		return false, nil
	}
	c.expect.ObserveCreate(j.UID, name)
	if err != nil {
		return false, err
	}
	var known bool
	c.updateMemory(j, func(m *memory) { known, m.takenNames[name] = m.takenNames[name], true })
	if known {
		return false, fmt.Errorf("create task group %s: the name is used by an object of another owner; delete that object, or rename the job", name)
	}
	return true, nil
}
