package jobflow

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	"k8s4r.io/k8s4r/internal/controllers/kit"
	"k8s4r.io/k8s4r/internal/core/naming"
)

const (
	// maxParallelCreates bounds the concurrent creates of Jobs of one flow.
	maxParallelCreates = 16
	// rejectedRetryDelay is the delay before a Job that the API server rejected, or whose
	// name is taken, is created again. No watch event reports that the cause is gone.
	rejectedRetryDelay = time.Minute
)

// apply stops and deletes Jobs, creates Jobs, and then writes the status with their UIDs.
// It returns the time to reconcile again; zero if nothing failed.
func (c *Controller) apply(ctx context.Context, in *Input, actions Actions) (again time.Time, err error) {
	for _, why := range actions.Reasons {
		ctrl.LoggerFrom(ctx).V(1).Info(why)
	}
	k := client.ObjectKeyFromObject(in.Flow)
	c.prober.SetTargets(k, actions.ProbeTargets)
	var errs []error
	for _, j := range actions.Stop {
		errs = append(errs, c.stopJob(ctx, in.Flow, j))
	}
	for _, d := range actions.Delete {
		errs = append(errs, c.deleteJob(ctx, in.Flow.Namespace, d))
	}
	made, err := c.createJobs(ctx, in.Flow, actions.Create)
	errs = append(errs, err, c.writeStatus(ctx, in, actions, made))
	if actions.DeleteFlow {
		errs = append(errs, c.deleteFlow(ctx, in.Flow))
	}
	c.memory.Update(k, in.Flow.UID, func(m *memory) { again = m.takeNextRetryTime(c.Now()) })
	return again, errors.Join(errs...)
}

// createJobs creates Jobs concurrently and returns their UIDs by step.
func (c *Controller) createJobs(ctx context.Context, f *flowv1.JobFlow, all []Create) (map[string]types.UID, error) {
	var mu sync.Mutex
	var errs []error
	made := make(map[string]types.UID, len(all))
	var group errgroup.Group
	group.SetLimit(maxParallelCreates)
	for _, one := range all {
		group.Go(func() error {
			id, err := c.createJob(ctx, f, one)
			mu.Lock()
			defer mu.Unlock()
			if id != "" {
				made[one.Step] = id
			}
			errs = append(errs, err)
			return nil
		})
	}
	_ = group.Wait() // errors are collected in errs
	return made, errors.Join(errs...)
}

func (o Create) jobObject() client.Object {
	if o.Robots != nil {
		return o.Robots
	}
	return o.Pods
}

// createJob creates one Job and returns its UID, or an empty UID if the Job does not
// exist.
func (c *Controller) createJob(ctx context.Context, f *flowv1.JobFlow, one Create) (types.UID, error) {
	o := one.jobObject()
	name := o.GetName()
	c.expect.ExpectCreate(f.UID, name)
	err := c.Create(ctx, o)
	if err == nil {
		// The recorder merges events that differ only in their text, unless they are
		// related to different objects.
		c.Recorder.Eventf(f, o, corev1.EventTypeNormal, "Created", "Create", "create a job named %s!", name)
		return o.GetUID(), nil
	}
	c.expect.ObserveCreate(f.UID, name)
	switch {
	case apierrors.IsAlreadyExists(err):
		return c.checkExistingJob(ctx, f, one)
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err), apierrors.IsBadRequest(err):
		c.memory.Update(client.ObjectKeyFromObject(f), f.UID, func(m *memory) {
			m.rejections[one.Step] = jobRejection{message: err.Error(), retryAt: c.Now().Add(rejectedRetryDelay)}
			m.retryNow = true
		})
		return "", nil
	}
	return "", fmt.Errorf("create job %s: %w", name, err)
}

// checkExistingJob reads the Job that has the wanted name. It returns its UID if the flow
// owns it, unless it is the retired Job of an earlier run.
func (c *Controller) checkExistingJob(ctx context.Context, f *flowv1.JobFlow, one Create) (types.UID, error) {
	var other client.Object = &batchv1.Job{}
	if one.Robots != nil {
		other = &robotv1.Job{}
	}
	k := client.ObjectKeyFromObject(one.jobObject())
	other.SetNamespace(k.Namespace)
	other.SetName(k.Name)
	owned, err := kit.ReadExisting(ctx, c.Live, f, other)
	if apierrors.IsNotFound(err) { // deleted meanwhile; no event will follow
		c.memory.Update(client.ObjectKeyFromObject(f), f.UID, func(m *memory) { m.retryNow = true })
	}
	if err != nil {
		return "", client.IgnoreNotFound(err)
	}
	if owned {
		if isRetiredJob(f, other.GetUID()) {
			return "", nil
		}
		return other.GetUID(), nil
	}
	c.memory.Update(client.ObjectKeyFromObject(f), f.UID, func(m *memory) {
		m.takenNames[k.Name] = c.Now().Add(rejectedRetryDelay)
		m.retryNow = true
	})
	return "", nil
}

func isRetiredJob(f *flowv1.JobFlow, id types.UID) bool {
	for i := range f.Status.Steps {
		if s := &f.Status.Steps[i]; s.RetiredUID == string(id) || s.JobUID == string(id) && s.NextRetryTime != nil {
			return true
		}
	}
	return false
}

// stopJob stops a pod job by a Command and a robot Job by its desired state.
func (c *Controller) stopJob(ctx context.Context, f *flowv1.JobFlow, j *Job) error {
	var err error
	if j.Kind == Robots {
		err = c.cancelRobotJob(ctx, f.Namespace, j)
	} else {
		err = c.createTerminateCommand(ctx, f, j)
	}
	if err != nil {
		return fmt.Errorf("stop job %s: %w", j.Name, err)
	}
	c.memory.Update(client.ObjectKeyFromObject(f), f.UID, func(m *memory) { m.stopRequestedAt[j.UID] = c.Now() })
	return nil
}

// cancelRobotJob patches spec.desiredState. An update would conflict with every status
// report of a robot, and the Job would continue until the retry. The UID protects a later
// Job of that name.
func (c *Controller) cancelRobotJob(ctx context.Context, namespace string, j *Job) error {
	patch := fmt.Appendf(nil, `{"metadata":{"uid":%q},"spec":{"desiredState":%q}}`, j.UID, robotv1.DesiredCanceled)
	o := &robotv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: j.Name}}
	return client.IgnoreNotFound(c.Patch(ctx, o, client.RawPatch(types.MergePatchType, patch)))
}

// createTerminateCommand creates a Command that asks the operator of pod jobs to terminate
// one.
func (c *Controller) createTerminateCommand(ctx context.Context, f *flowv1.JobFlow, j *Job) error {
	target := metav1.OwnerReference{APIVersion: batchv1.GroupVersion.String(), Kind: "Job", Name: j.Name, UID: j.UID}
	command := &busv1.Command{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: f.Namespace, Name: naming.UniqueChildName(naming.MaxName, string(j.UID), j.Name, "terminate"),
			OwnerReferences: []metav1.OwnerReference{target}, // the Command is deleted together with the Job
		},
		Action: string(batchv1.TerminateJobAction), TargetObject: &target,
		Reason: "FlowStops", Message: "flow " + f.Name + " stops its jobs",
	}
	if err := c.Create(ctx, command); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	return nil
}

// deleteJob deletes this Job, but no later one of its name.
func (c *Controller) deleteJob(ctx context.Context, namespace string, d Delete) error {
	meta := metav1.ObjectMeta{Namespace: namespace, Name: d.Name}
	var o client.Object = &batchv1.Job{ObjectMeta: meta}
	if d.Kind == Robots {
		o = &robotv1.Job{ObjectMeta: meta}
	}
	opts := []client.DeleteOption{client.Preconditions{UID: &d.UID}}
	if d.Foreground {
		opts = append(opts, client.PropagationPolicy(metav1.DeletePropagationForeground))
	}
	if err := ignoreGoneOrConflict(c.Delete(ctx, o, opts...)); err != nil {
		return fmt.Errorf("delete job %s: %w", d.Name, err)
	}
	return nil
}

// deleteFlow deletes the flow only if it has not changed since it was read, for example by
// a retry.
func (c *Controller) deleteFlow(ctx context.Context, f *flowv1.JobFlow) error {
	err := c.Delete(ctx, f, client.Preconditions{UID: &f.UID, ResourceVersion: &f.ResourceVersion}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if err := ignoreGoneOrConflict(err); err != nil {
		return fmt.Errorf("delete the flow: %w", err)
	}
	return nil
}

// ignoreGoneOrConflict drops errors about objects that changed or were deleted meanwhile;
// the watch triggers another reconcile.
func ignoreGoneOrConflict(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// writeStatus writes the planned status with the UIDs of the created Jobs.
func (c *Controller) writeStatus(ctx context.Context, in *Input, actions Actions, made map[string]types.UID) error {
	if actions.Status == nil {
		return nil
	}
	status := *actions.Status
	status.Steps = recordCreatedJobs(status.Steps, made)
	f := in.Flow
	f.Status = status
	if written, err := c.expect.UpdateStatus(ctx, c, f); !written {
		return err
	}
	c.memory.Update(client.ObjectKeyFromObject(f), f.UID, func(m *memory) { m.recordStatusWrite(c.Now(), in) })
	countEnd(f.Namespace, actions.EndedPhase)
	for _, e := range actions.Events {
		c.recordEvent(f, e)
	}
	return nil
}

// recordEvent records an event. Events of different steps are related to their Jobs,
// because the recorder would merge them otherwise.
func (c *Controller) recordEvent(f *flowv1.JobFlow, e Event) {
	kind := corev1.EventTypeNormal
	if e.Warning {
		kind = corev1.EventTypeWarning
	}
	var related runtime.Object
	if e.Job != "" {
		related = &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: e.Job}}
	}
	c.Recorder.Eventf(f, related, kind, e.Reason, "SyncJobFlow", "%s", e.Message)
}

// recordCreatedJobs returns the steps with the UIDs of created Jobs, without the steps
// that have nothing to record.
func recordCreatedJobs(all []flowv1.StepStatus, made map[string]types.UID) []flowv1.StepStatus {
	out := make([]flowv1.StepStatus, 0, len(all))
	for _, s := range all {
		if id := made[s.Name]; id != "" && s.JobUID != string(id) {
			recordNewJob(&s, string(id))
		}
		if s.JobUID != "" || s.RetiredUID != "" || s.Skipped || s.Reason != "" || s.Retries > 0 || s.NextRetryTime != nil {
			out = append(out, s)
		}
	}
	return out
}

// recordStatusWrite forgets what the written status now records.
func (m *memory) recordStatusWrite(now time.Time, in *Input) {
	m.lastStatusWrite = now
	for id := range in.DeletedJobs {
		delete(m.deletedJobs, id)
	}
	for id := range in.MissingSince {
		if !m.needsDeletionRecorded(in.Flow, id) {
			delete(m.missingSince, id)
		}
	}
}

// needsDeletionRecorded reports whether the status does not record the deletion of a
// missing Job yet.
func (m *memory) needsDeletionRecorded(f *flowv1.JobFlow, id types.UID) bool {
	for i := range f.Status.Steps {
		if s := &f.Status.Steps[i]; s.JobUID == string(id) {
			return s.Reason != ReasonJobDeleted
		}
	}
	return slices.ContainsFunc(recordedJobs(f), func(r recordedJob) bool { return r.uid == "" && r.key() == id })
}
