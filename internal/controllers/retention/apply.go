package retention

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ReasonRetentionInvalid is the reason of the event of a namespace in which nothing is deleted,
// because its annotation is invalid.
const ReasonRetentionInvalid = "RetentionInvalid"

func (c *Controller) apply(ctx context.Context, actions Actions) error {
	for _, why := range actions.Reasons {
		ctrl.LoggerFrom(ctx).V(1).Info(why)
	}
	var errs []error
	for _, d := range actions.Delete {
		errs = append(errs, c.deleteFinished(ctx, d))
	}
	return errors.Join(errs...)
}

// deleteFinished deletes the version of the object that the plan has seen. One that was changed
// since, by a requeue or by the annotation that keeps it, stays.
func (c *Controller) deleteFinished(ctx context.Context, d Delete) error {
	uid, version := d.Object.Object.GetUID(), d.Object.Object.GetResourceVersion()
	err := c.Delete(ctx, d.Object.Object, client.Preconditions{UID: &uid, ResourceVersion: &version}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsConflict(err):
		return nil // the watch event triggers the next plan
	case err != nil:
		return fmt.Errorf("delete %s %s: %w", d.Kind, d.Object.Object.GetName(), err)
	}
	deleted.WithLabelValues(d.Kind, d.Limit).Inc()
	return nil
}

// reportInvalid records an event about the annotations of a namespace, once for each error.
func (c *Controller) reportInvalid(namespace client.Object, err error) {
	if err == nil {
		c.invalid.Delete(namespace.GetName())
		return
	}
	if was, known := c.invalid.Swap(namespace.GetName(), err.Error()); known && was == err.Error() {
		return
	}
	c.Recorder.Eventf(namespace, nil, corev1.EventTypeWarning, ReasonRetentionInvalid, "Retain", "no finished object is deleted: %s", err.Error())
}
