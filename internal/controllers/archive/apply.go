package archive

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/archive"
)

const (
	// retryDelay is the delay before an object that could not be recorded is retried.
	retryDelay = 5 * time.Second
	// recordTimeout bounds one transaction.
	recordTimeout = 30 * time.Second
	// recordBatch bounds the objects of one transaction.
	recordBatch = 500
	// pruneEvery is how often the retention is applied.
	pruneEvery = time.Hour
)

// Reasons of the condition Archived and of its event.
const (
	// ReasonRecorded is the reason of an object whose end is in the archive.
	ReasonRecorded = "Recorded"
	// ReasonUnavailable is the reason of an ended object that the archive did not accept.
	ReasonUnavailable = "ArchiveUnavailable"
)

// unavailableMessage omits the error, which is in the log: a message that differs each time
// would cause a status write each time.
const unavailableMessage = "the archive is unavailable; the object is kept until it is recorded"

// unavailableError means that the archive did not accept a write.
type unavailableError struct{ error }

// Unwrap returns the error of the archive.
func (d unavailableError) Unwrap() error { return d.error }

// apply records objects in the archive before it marks them, because marked objects may be deleted.
func (c *Controller) apply(ctx context.Context, o client.Object, w *Input, actions Actions, deleted *time.Time) error {
	err := c.recordObjects(ctx, w, actions, deleted)
	if ctx.Err() != nil {
		return ctx.Err() // the manager is stopping; the archive is not down
	}
	if err != nil || len(actions.Record) > 0 || actions.RecordDeletion {
		c.health.reportResult(ctx, err)
	}
	if err != nil {
		if actions.MarkArchived {
			err = errors.Join(err, c.markArchived(ctx, o, metav1.ConditionFalse))
		}
		return unavailableError{err}
	}
	if w.Deleted {
		c.recordedKeys.Delete(o.GetUID())
		return nil
	}
	if len(actions.Record) > 0 || w.Archived {
		c.recordedKeys.Store(o.GetUID(), actions.RecordKey)
	}
	if actions.MarkArchived {
		return c.markArchived(ctx, o, metav1.ConditionTrue)
	}
	return nil
}

func (c *Controller) recordObjects(ctx context.Context, w *Input, actions Actions, deleted *time.Time) error {
	if len(actions.Record) == 1 {
		if err := c.batches.recordObject(ctx, actions.Record[0]); err != nil {
			return err
		}
	} else if err := c.recordParts(ctx, actions.Record); err != nil {
		return err
	}
	if !actions.RecordDeletion || deleted == nil {
		return nil
	}
	bounded, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	return c.Store.MarkDeleted(bounded, w.Object.UID, *deleted)
}

// recordParts records an ended object after its parts.
func (c *Controller) recordParts(ctx context.Context, objects []archive.Object) error {
	for batch := range slices.Chunk(objects, recordBatch) {
		if err := c.recordTransaction(ctx, batch); err != nil {
			return err
		}
	}
	return nil
}

// recordTransaction records objects in one transaction.
func (c *Controller) recordTransaction(ctx context.Context, objects []archive.Object) error {
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	began := c.Now()
	err := c.Store.Record(ctx, objects...)
	observeTransaction(began, c.Now(), objects, err)
	return err
}

// markArchived shows in an object whether its end is archived. Conflicts are not errors: the
// watch event triggers another reconcile.
func (c *Controller) markArchived(ctx context.Context, o client.Object, is metav1.ConditionStatus) error {
	var changed bool
	var err error
	switch o := o.(type) {
	case *v1alpha1.Job:
		if changed = c.setArchived(&o.Status.Conditions, v1alpha1.ConditionArchived, is, o.Status.ObservedGeneration); changed {
			err = c.Status().Update(ctx, o)
		}
	case *flowv1.JobFlow:
		if changed = c.setArchived(&o.Status.FlowConditions, flowv1.ConditionArchived, is, o.Status.ObservedGeneration); changed {
			err = c.Status().Update(ctx, o)
		}
	case *batchv1.Job:
		if changed = is == metav1.ConditionTrue && !o.IsArchived(); changed {
			err = c.annotateArchived(ctx, o)
		}
	}
	switch {
	case apierrors.IsConflict(err) || apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("mark %s as archived: %w", o.GetName(), err)
	case changed && is == metav1.ConditionFalse:
		c.Recorder.Eventf(o, nil, corev1.EventTypeWarning, ReasonUnavailable, "Archive", "%s", unavailableMessage)
	}
	return nil
}

func (c *Controller) setArchived(all *[]metav1.Condition, kind string, is metav1.ConditionStatus, generation int64) bool {
	next := metav1.Condition{
		Type: kind, Status: is, Reason: ReasonRecorded, Message: "the end of the object is archived",
		ObservedGeneration: generation, LastTransitionTime: metav1.NewTime(c.Now()),
	}
	if is != metav1.ConditionTrue {
		next.Reason, next.Message = ReasonUnavailable, unavailableMessage
	}
	return meta.SetStatusCondition(all, next)
}

// annotateArchived marks a VCJob, whose status has no field for it. The patch contains the
// resource version, because the phase may have changed.
func (c *Controller) annotateArchived(ctx context.Context, j *batchv1.Job) error {
	patch := fmt.Appendf(nil, `{"metadata":{"uid":%q,"resourceVersion":%q,"annotations":{%q:%q}}}`,
		j.UID, j.ResourceVersion, batchv1.AnnotationArchived, j.ArchiveMarker())
	bare := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: j.Namespace, Name: j.Name}}
	return c.Patch(ctx, bare, client.RawPatch(types.MergePatchType, patch))
}

// retryResult retries after a fixed delay while the archive is down; archiveHealth has logged
// the error. A growing delay would keep ended objects long after the archive is back.
func retryResult(err error) (reconcile.Result, error) {
	var d unavailableError
	if errors.As(err, &d) {
		return reconcile.Result{RequeueAfter: retryDelay}, nil
	}
	return reconcile.Result{}, err
}

// archiveHealth logs when the archive becomes unavailable and when it is back.
type archiveHealth struct {
	mu   sync.Mutex
	down bool
}

func (l *archiveHealth) reportResult(ctx context.Context, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	log := ctrl.LoggerFrom(ctx)
	switch {
	case err != nil && !l.down:
		log.Error(err, "Archive unavailable; ended objects are kept until they are recorded")
	case err == nil && l.down:
		log.Info("Archive available again")
	}
	l.down = err != nil
	reachable.WithLabelValues().Set(0)
	if !l.down {
		reachable.WithLabelValues().Set(1)
	}
}

// pruneLoop applies the retention until the manager stops.
func (c *Controller) pruneLoop(ctx context.Context) error {
	log := ctrl.LoggerFrom(ctx).WithName(Name)
	every := time.NewTicker(pruneEvery)
	defer every.Stop()
	for {
		if err := c.bindNamespaces(ctx); err != nil && ctx.Err() == nil {
			log.Error(err, "Failed to bind archived objects to their namespaces; only users that may see all namespaces see them")
		}
		pruned, err := c.Store.Prune(ctx, c.Retention)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			log.Error(err, "Failed to prune the archive")
		case pruned.Objects > 0:
			log.Info("Pruned the archive", "objects", pruned.Objects, "bytes", pruned.Bytes)
		}
		if size, err := c.Store.TotalBytes(ctx); err == nil { // Prune has logged the error
			sizeBytes.WithLabelValues().Set(float64(size))
			reachable.WithLabelValues().Set(1)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-every.C:
		}
	}
}
