package jobflow

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	busv1 "k8s4r.io/k8s4r/api/bus/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/child"
)

const (
	// parallelCreates of Jobs of one flow.
	parallelCreates = 16
	// refusedAgain is how long a Job that was refused, or whose name is taken, waits
	// before it is tried again, for nobody tells when that has changed.
	refusedAgain = time.Minute
)

// apply stops and deletes first, then creates, then writes the status, which has the
// UIDs of what was made. It tells when to look again. Zero: nothing was in the way.
func (c *Controller) apply(ctx context.Context, w *World, steps Steps) (again time.Time, err error) {
	for _, why := range steps.Why {
		ctrl.LoggerFrom(ctx).V(1).Info(why)
	}
	k := client.ObjectKeyFromObject(w.Flow)
	c.prober.Keep(k, steps.Probe)
	var errs []error
	for _, j := range steps.Stop {
		errs = append(errs, c.stop(ctx, w.Flow, j))
	}
	for _, d := range steps.Delete {
		errs = append(errs, c.remove(ctx, w.Flow.Namespace, d))
	}
	made, err := c.createAll(ctx, w.Flow, steps.Create)
	errs = append(errs, err, c.writeStatus(ctx, w, steps, made))
	if steps.Remove {
		errs = append(errs, c.removeFlow(ctx, w.Flow))
	}
	c.memory.Of(k, w.Flow.UID, func(m *memory) { again = m.lookAgain(c.Now()) })
	return again, errors.Join(errs...)
}

// createAll makes Jobs side by side, and returns their UIDs by step.
func (c *Controller) createAll(ctx context.Context, f *flowv1.JobFlow, all []Create) (map[string]types.UID, error) {
	var mu sync.Mutex
	var errs []error
	made := make(map[string]types.UID, len(all))
	var group errgroup.Group
	group.SetLimit(parallelCreates)
	for _, one := range all {
		group.Go(func() error {
			id, err := c.create(ctx, f, one)
			mu.Lock()
			defer mu.Unlock()
			if id != "" {
				made[one.Step] = id
			}
			errs = append(errs, err)
			return nil
		})
	}
	_ = group.Wait() // what failed is in errs: the others go on
	return made, errors.Join(errs...)
}

func (o Create) object() client.Object {
	if o.Robots != nil {
		return o.Robots
	}
	return o.Pods
}

// create makes one Job and tells its UID. Empty: it is not there.
func (c *Controller) create(ctx context.Context, f *flowv1.JobFlow, one Create) (types.UID, error) {
	o := one.object()
	name := o.GetName()
	c.expect.Create(f.UID, name)
	err := c.Create(ctx, o)
	if err == nil {
		// With the Job beside it the event is one of its own: the recorder counts
		// those that differ in their text alone as one.
		c.Recorder.Eventf(f, o, corev1.EventTypeNormal, "Created", "Create", "create a job named %s!", name)
		return o.GetUID(), nil
	}
	c.expect.Created(f.UID, name)
	switch {
	case apierrors.IsAlreadyExists(err):
		return c.meet(ctx, f, one)
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err), apierrors.IsBadRequest(err):
		c.memory.Of(client.ObjectKeyFromObject(f), f.UID, func(m *memory) {
			m.refused[one.Step] = refusal{message: err.Error(), again: c.Now().Add(refusedAgain)}
			m.news = true
		})
		return "", nil
	}
	return "", fmt.Errorf("create job %s: %w", name, err)
}

// meet looks at who holds the name. Our own Job is good news; it may be one of an
// earlier run that is still to go.
func (c *Controller) meet(ctx context.Context, f *flowv1.JobFlow, one Create) (types.UID, error) {
	var other client.Object = &batchv1.Job{}
	if one.Robots != nil {
		other = &robotv1.Job{}
	}
	k := client.ObjectKeyFromObject(one.object())
	err := c.Live.Get(ctx, k, other)
	if apierrors.IsNotFound(err) { // it has gone this moment, and nobody would say so again
		c.memory.Of(client.ObjectKeyFromObject(f), f.UID, func(m *memory) { m.news = true })
	}
	if err != nil {
		return "", client.IgnoreNotFound(err)
	}
	if metav1.IsControlledBy(other, f) {
		if retired(f, other.GetUID()) {
			return "", nil
		}
		return other.GetUID(), nil
	}
	c.memory.Of(client.ObjectKeyFromObject(f), f.UID, func(m *memory) {
		m.taken[k.Name] = c.Now().Add(refusedAgain)
		m.news = true
	})
	return "", nil
}

func retired(f *flowv1.JobFlow, id types.UID) bool {
	for i := range f.Status.Steps {
		if s := &f.Status.Steps[i]; s.RetiredUID == string(id) || s.JobUID == string(id) && s.NextRetryTime != nil {
			return true
		}
	}
	return false
}

// stop calls a Job off: one of pods by a Command, one on robots by its desired state.
func (c *Controller) stop(ctx context.Context, f *flowv1.JobFlow, j *Job) error {
	var err error
	if j.Kind == Robots {
		err = c.cancelRobots(ctx, f.Namespace, j)
	} else {
		err = c.command(ctx, f, j)
	}
	if err != nil {
		return fmt.Errorf("stop job %s: %w", j.Name, err)
	}
	c.memory.Of(client.ObjectKeyFromObject(f), f.UID, func(m *memory) { m.stopped[j.UID] = c.Now() })
	return nil
}

// cancelRobots writes one field, whatever others write meanwhile: an update would meet
// the conflict of each report of a robot, and the Job would drive on until it is asked
// again. The UID is that of this Job and of no later one of its name.
func (c *Controller) cancelRobots(ctx context.Context, namespace string, j *Job) error {
	patch := fmt.Appendf(nil, `{"metadata":{"uid":%q},"spec":{"desiredState":%q}}`, j.UID, robotv1.DesiredCanceled)
	o := &robotv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: j.Name}}
	return client.IgnoreNotFound(c.Patch(ctx, o, client.RawPatch(types.MergePatchType, patch)))
}

// command asks whoever runs vcjobs to terminate one (contract §2, Commands).
func (c *Controller) command(ctx context.Context, f *flowv1.JobFlow, j *Job) error {
	target := metav1.OwnerReference{APIVersion: batchv1.GroupVersion.String(), Kind: "Job", Name: j.Name, UID: j.UID}
	command := &busv1.Command{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: f.Namespace, Name: child.Other(child.MaxName, string(j.UID), j.Name, "terminate"),
			OwnerReferences: []metav1.OwnerReference{target}, // it goes with a Job that nobody stops
		},
		Action: string(batchv1.TerminateJobAction), TargetObject: &target,
		Reason: "FlowStops", Message: "flow " + f.Name + " stops its jobs",
	}
	if err := c.Create(ctx, command); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	return nil
}

// remove deletes this Job, and no later one of its name.
func (c *Controller) remove(ctx context.Context, namespace string, d Delete) error {
	meta := metav1.ObjectMeta{Namespace: namespace, Name: d.Name}
	var o client.Object = &batchv1.Job{ObjectMeta: meta}
	if d.Kind == Robots {
		o = &robotv1.Job{ObjectMeta: meta}
	}
	opts := []client.DeleteOption{client.Preconditions{UID: &d.UID}}
	if d.Whole {
		opts = append(opts, client.PropagationPolicy(metav1.DeletePropagationForeground))
	}
	if err := ignoreFaster(c.Delete(ctx, o, opts...)); err != nil {
		return fmt.Errorf("delete job %s: %w", d.Name, err)
	}
	return nil
}

// removeFlow deletes the flow as it was seen: one that is retried meanwhile stays.
func (c *Controller) removeFlow(ctx context.Context, f *flowv1.JobFlow) error {
	err := c.Delete(ctx, f, client.Preconditions{UID: &f.UID, ResourceVersion: &f.ResourceVersion}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if err := ignoreFaster(err); err != nil {
		return fmt.Errorf("delete the flow: %w", err)
	}
	return nil
}

// ignoreFaster takes it that somebody else was faster; the watch brings it.
func ignoreFaster(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// writeStatus writes what was decided, with the UIDs of the Jobs that were made.
func (c *Controller) writeStatus(ctx context.Context, w *World, steps Steps, made map[string]types.UID) error {
	if steps.Status == nil {
		return nil
	}
	status := *steps.Status
	status.Steps = withUIDs(status.Steps, made)
	f := w.Flow
	f.Status = status
	if written, err := c.expect.UpdateStatus(ctx, c, f); !written {
		return err
	}
	c.memory.Of(client.ObjectKeyFromObject(f), f.UID, func(m *memory) { m.wrote(c.Now(), w) })
	count(f.Namespace, steps.Ended)
	for _, e := range steps.Events {
		c.tell(f, e)
	}
	return nil
}

// tell makes an event. Those of two steps name their Jobs, or the recorder would count
// them as one.
func (c *Controller) tell(f *flowv1.JobFlow, e Event) {
	kind := corev1.EventTypeNormal
	if e.Warning {
		kind = corev1.EventTypeWarning
	}
	var related runtime.Object
	if e.Job != "" {
		related = &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: e.Job}}
	}
	c.Recorder.Eventf(f, related, kind, e.Reason, "SyncJobFlow", "%s", e.Note)
}

// withUIDs notes the Jobs that were made, and leaves out what says nothing.
func withUIDs(all []flowv1.StepStatus, made map[string]types.UID) []flowv1.StepStatus {
	out := make([]flowv1.StepStatus, 0, len(all))
	for _, s := range all {
		if id := made[s.Name]; id != "" && s.JobUID != string(id) {
			begin(&s, string(id))
		}
		if s.JobUID != "" || s.RetiredUID != "" || s.Skipped || s.Reason != "" || s.Retries > 0 || s.NextRetryTime != nil {
			out = append(out, s)
		}
	}
	return out
}

// wrote notes a write of the status: what it holds need not be remembered.
func (m *memory) wrote(now time.Time, w *World) {
	m.lastStatus = now
	for id := range w.Gone {
		delete(m.gone, id)
	}
	for id := range w.Missing {
		if !m.waits(w.Flow, id) {
			delete(m.missing, id)
		}
	}
}

// waits tells whether the status still says nothing of the end of a missing Job.
func (m *memory) waits(f *flowv1.JobFlow, id types.UID) bool {
	for i := range f.Status.Steps {
		if s := &f.Status.Steps[i]; s.JobUID == string(id) {
			return s.Reason != ReasonJobDeleted
		}
	}
	return false
}
