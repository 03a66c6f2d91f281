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
)

const (
	// recordAgain is when an object is tried again that could not be recorded.
	recordAgain = 5 * time.Second
	// recordTimeout bounds one transaction.
	recordTimeout = 30 * time.Second
	// recordBatch is how many objects go in one transaction.
	recordBatch = 500
	// pruneEvery so often what is too old, or too much, is removed.
	pruneEvery = time.Hour
)

// The reasons of the condition Archived, and of the event.
const (
	ReasonRecorded    = "Recorded"
	ReasonUnavailable = "ArchiveUnavailable"
)

// unavailable does not say what exactly is wrong: a sentence that differs each time would be
// written each time. The log has it.
const unavailable = "the archive cannot be reached; nothing is removed before it is recorded there"

// down is the error for an archive that does not take what is to be recorded.
type down struct{ error }

// Unwrap is what the archive said.
func (d down) Unwrap() error { return d.error }

// apply records first and marks then: what is marked may be removed.
func (c *Controller) apply(ctx context.Context, o client.Object, w *World, steps Steps, deleted *time.Time) error {
	err := c.store(ctx, w, steps, deleted)
	if ctx.Err() != nil {
		return ctx.Err() // we are being stopped; the archive is not down
	}
	if err != nil || len(steps.Record) > 0 || steps.Deleted {
		c.link.say(ctx, err)
	}
	if err != nil {
		if steps.Mark {
			err = errors.Join(err, c.mark(ctx, o, metav1.ConditionFalse))
		}
		return down{err}
	}
	if w.Gone {
		c.noted.Delete(o.GetUID())
		return nil
	}
	if len(steps.Record) > 0 || w.Archived {
		c.noted.Store(o.GetUID(), steps.Note)
	}
	if steps.Mark {
		return c.mark(ctx, o, metav1.ConditionTrue)
	}
	return nil
}

func (c *Controller) store(ctx context.Context, w *World, steps Steps, deleted *time.Time) error {
	for batch := range slices.Chunk(steps.Record, recordBatch) {
		bounded, cancel := context.WithTimeout(ctx, recordTimeout)
		began := c.Now()
		err := c.Store.Record(bounded, batch...)
		cancel()
		measure(began, c.Now(), batch, err)
		if err != nil {
			return err
		}
	}
	if !steps.Deleted || deleted == nil {
		return nil
	}
	bounded, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	return c.Store.Deleted(bounded, w.Object.UID, *deleted)
}

// mark writes whether the end of an object is in the archive. A conflict is no error: the
// watch brings who was faster.
func (c *Controller) mark(ctx context.Context, o client.Object, is metav1.ConditionStatus) error {
	var changed bool
	var err error
	switch o := o.(type) {
	case *v1alpha1.Job:
		if changed = c.set(&o.Status.Conditions, v1alpha1.ConditionArchived, is, o.Status.ObservedGeneration); changed {
			err = c.Status().Update(ctx, o)
		}
	case *flowv1.JobFlow:
		if changed = c.set(&o.Status.FlowConditions, flowv1.ConditionArchived, is, o.Status.ObservedGeneration); changed {
			err = c.Status().Update(ctx, o)
		}
	case *batchv1.Job:
		if changed = is == metav1.ConditionTrue && !o.Archived(); changed {
			err = c.annotate(ctx, o)
		}
	}
	switch {
	case apierrors.IsConflict(err) || apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("mark %s as archived: %w", o.GetName(), err)
	case changed && is == metav1.ConditionFalse:
		c.Recorder.Eventf(o, nil, corev1.EventTypeWarning, ReasonUnavailable, "Archive", "%s", unavailable)
	}
	return nil
}

func (c *Controller) set(all *[]metav1.Condition, kind string, is metav1.ConditionStatus, generation int64) bool {
	next := metav1.Condition{
		Type: kind, Status: is, Reason: ReasonRecorded, Message: "its end is in the archive",
		ObservedGeneration: generation, LastTransitionTime: metav1.NewTime(c.Now()),
	}
	if is != metav1.ConditionTrue {
		next.Reason, next.Message = ReasonUnavailable, unavailable
	}
	return meta.SetStatusCondition(all, next)
}

// annotate marks a Job of Volcano's kind, whose status has no room for it. The phase may
// have changed since it was seen, so the version is named.
func (c *Controller) annotate(ctx context.Context, j *batchv1.Job) error {
	patch := fmt.Appendf(nil, `{"metadata":{"uid":%q,"resourceVersion":%q,"annotations":{%q:%q}}}`,
		j.UID, j.ResourceVersion, batchv1.AnnotationArchived, j.ArchivedAs())
	bare := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: j.Namespace, Name: j.Name}}
	return c.Patch(ctx, bare, client.RawPatch(types.MergePatchType, patch))
}

// later tries again soon where the archive is down, and says nothing: link has said it. A
// delay that grows would hold back what has ended for long after the archive is back.
func later(err error) (reconcile.Result, error) {
	var d down
	if errors.As(err, &d) {
		return reconcile.Result{RequeueAfter: recordAgain}, nil
	}
	return reconcile.Result{}, err
}

// link says once when the archive goes down, and once when it is back.
type link struct {
	mu   sync.Mutex
	down bool
}

func (l *link) say(ctx context.Context, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	log := ctrl.LoggerFrom(ctx)
	switch {
	case err != nil && !l.down:
		log.Error(err, "The archive takes nothing; what has ended is kept until it does")
	case err == nil && l.down:
		log.Info("The archive works again")
	}
	l.down = err != nil
	reachable.WithLabelValues().Set(0)
	if !l.down {
		reachable.WithLabelValues().Set(1)
	}
}

// keep keeps the archive within its bounds, until the manager stops.
func (c *Controller) keep(ctx context.Context) error {
	log := ctrl.LoggerFrom(ctx).WithName(Name)
	every := time.NewTicker(pruneEvery)
	defer every.Stop()
	for {
		pruned, err := c.Store.Prune(ctx, c.Retention)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			log.Error(err, "Prune the archive")
		case pruned.Objects > 0:
			log.Info("Pruned the archive", "objects", pruned.Objects, "bytes", pruned.Bytes)
		}
		if size, err := c.Store.Size(ctx); err == nil { // Prune has said what is wrong
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
