package archive

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	cronv1 "k8s4r.io/k8s4r/api/cron/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/archive"
	"k8s4r.io/k8s4r/internal/core/actions"
)

// actionKindOf returns the kind of an object in whose annotation admission records actions.
func actionKindOf(o client.Object) (archive.Kind, bool) {
	switch o.(type) {
	case *v1alpha1.Job:
		return archive.Job, true
	case *v1alpha1.Robot:
		return archive.Robot, true
	case *flowv1.JobFlow:
		return archive.JobFlow, true
	case *cronv1.CronJobFlow:
		return archive.CronJobFlow, true
	case *batchv1.Job:
		return archive.VCJob, true
	case *rayv1.RayCluster:
		return archive.RayCluster, true
	}
	return "", false
}

// recordActions records the actions in the annotation of an object, unless this process has done so.
func (c *Controller) recordActions(ctx context.Context, o client.Object, isDeleted bool) error {
	kind, ok := actionKindOf(o)
	text := o.GetAnnotations()[actions.AnnotationRecords]
	if known, _ := c.recordedActions.Load(o.GetUID()); !c.ReadActions || !ok || text == "" || known == text {
		return nil
	}
	all, err := c.readActions(ctx, o, isDeleted, kind, text)
	if err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	err = c.Store.RecordActions(bounded, all, nil)
	if ctx.Err() != nil {
		return ctx.Err() // the manager is stopping; the archive is not down
	}
	c.health.reportResult(ctx, err)
	if err != nil {
		return unavailableError{err}
	}
	c.recordedActions.Store(o.GetUID(), text)
	return nil
}

// readActions returns the actions in an annotation that the archive keeps.
func (c *Controller) readActions(ctx context.Context, o client.Object, isDeleted bool, kind archive.Kind, text string) ([]archive.Action, error) {
	namespace, err := c.namespaceUID(ctx, o, isDeleted)
	if err != nil {
		return nil, err
	}
	var all []archive.Action
	for _, r := range actions.ParseRecords(text) {
		if c.Retention.Age > 0 && c.Now().Sub(r.At) > c.Retention.Age {
			continue // it may have been pruned
		}
		all = append(all, archive.Action{
			ID: r.ID, At: r.At, User: r.User, Verb: r.Verb, Kind: kind, Namespace: o.GetNamespace(), NamespaceUID: namespace,
			Name: o.GetName(), UID: string(o.GetUID()), Did: actions.Describe(r.Verb, r.Changes),
		})
	}
	return all, nil
}
