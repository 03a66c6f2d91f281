package archive

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/archive"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/taskcounts"
)

// observe reads the input of Plan.
func (c *Controller) observe(ctx context.Context, o client.Object, isDeleted bool) (*Input, error) {
	job, err := c.jobOf(ctx, o)
	if err != nil {
		return nil, err
	}
	w := &Input{Deleted: isDeleted}
	if w.Object, err = archive.NewObject(o, job); err != nil {
		return nil, err
	}
	if w.Object.NamespaceUID, err = c.namespaceUID(ctx, o, isDeleted); err != nil {
		return nil, err
	}
	if recorded, ok := c.recordedKeys.Load(o.GetUID()); ok {
		w.RecordedKey, _ = recorded.(string)
	}
	if isDeleted {
		return w, nil
	}
	switch o := o.(type) {
	case *v1alpha1.Task:
		// It was archived together with its job.
		w.Archived = job != nil && job.Status.IsArchived()
	case *v1alpha1.TaskGroup:
		w.Archived = job != nil && job.Status.IsArchived()
	case *v1alpha1.Job:
		err = c.observeJob(ctx, o, w)
	case *flowv1.JobFlow:
		err = c.observeFlow(ctx, o, w)
	case *batchv1.Job:
		w.Archived = o.IsArchived()
		w.Complete = c.VCJobs && lifecycle.VCJobPhase(o.Status.State.Phase).IsFinished()
	}
	return w, err
}

// jobOf returns the Job of a task or a group, or nil if there is none.
func (c *Controller) jobOf(ctx context.Context, o client.Object) (*v1alpha1.Job, error) {
	var name string
	switch o := o.(type) {
	case *v1alpha1.Task:
		name = o.Spec.JobName
	case *v1alpha1.TaskGroup:
		name = o.Spec.JobName
	}
	if name == "" {
		return nil, nil
	}
	var j v1alpha1.Job
	if err := c.Get(ctx, client.ObjectKey{Namespace: o.GetNamespace(), Name: name}, &j, client.UnsafeDisableDeepCopy); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return &j, nil
}

// observeJob reads the groups and tasks of an ended job.
func (c *Controller) observeJob(ctx context.Context, j *v1alpha1.Job, w *Input) error {
	var counts lifecycle.Counts
	taskcounts.AddTo(&counts, j.Status.TaskCounts)
	if !taskcounts.HasEnded(lifecycle.JobState(j.Status.State), counts) || j.Status.CompletedAt == nil {
		return nil
	}
	if w.Archived = j.Status.IsArchived(); w.Archived {
		return nil
	}
	ofJob := []client.ListOption{client.InNamespace(j.Namespace), client.MatchingFields{indexJob: j.Name}, client.UnsafeDisableDeepCopy}
	var groups v1alpha1.TaskGroupList
	if err := c.List(ctx, &groups, ofJob...); err != nil {
		return fmt.Errorf("list task groups: %w", err)
	}
	var tasks v1alpha1.TaskList
	if err := c.List(ctx, &tasks, ofJob...); err != nil {
		return fmt.Errorf("list tasks: %w", err)
	}
	own := map[types.UID]bool{}
	for i := range groups.Items {
		if g := &groups.Items[i]; metav1.IsControlledBy(g, j) {
			own[g.UID] = true
			if err := w.addPart(g, j); err != nil {
				return err
			}
		}
	}
	for i := range tasks.Items {
		t := &tasks.Items[i]
		owner := metav1.GetControllerOfNoCopy(t)
		if owner == nil || !own[owner.UID] {
			continue
		}
		if !lifecycle.TaskState(t.Status.State).IsTerminal() {
			w.Parts = nil
			return nil // the task was requeued; the update of its job triggers another plan
		}
		if err := w.addPart(t, j); err != nil {
			return err
		}
	}
	w.Complete = true
	return nil
}

func (w *Input) addPart(o client.Object, j *v1alpha1.Job) error {
	part, err := archive.NewObject(o, j)
	if err == nil {
		part.NamespaceUID = w.Object.NamespaceUID
		w.Parts = append(w.Parts, part)
	}
	return err
}

// observeFlow reads the jobs of an ended flow. The flow is complete once its jobs are archived,
// because they are deleted together with it.
func (c *Controller) observeFlow(ctx context.Context, f *flowv1.JobFlow, w *Input) error {
	if w.Object.Outcome == "" || w.Object.Finished.IsZero() {
		return nil
	}
	if w.Archived = f.Status.IsArchived(); w.Archived {
		return nil
	}
	own := []client.ListOption{client.InNamespace(f.Namespace), client.MatchingFields{indexFlow: string(f.UID)}, client.UnsafeDisableDeepCopy}
	var jobs v1alpha1.JobList
	if err := c.List(ctx, &jobs, own...); err != nil {
		return fmt.Errorf("list jobs: %w", err)
	}
	for i := range jobs.Items {
		if !jobs.Items[i].Status.IsArchived() {
			return nil // the update of the job triggers another plan
		}
	}
	var podJobs batchv1.JobList
	if err := c.List(ctx, &podJobs, own...); err != nil {
		return fmt.Errorf("list pod jobs: %w", err)
	}
	for i := range podJobs.Items {
		j := &podJobs.Items[i]
		if !lifecycle.VCJobPhase(j.Status.State.Phase).IsSettled() {
			return nil
		}
		if err := w.addPart(j, nil); err != nil {
			return err
		}
	}
	w.Complete = true
	return nil
}

// flowOf returns the flow of which an object is a step.
func flowOf(o client.Object) (types.NamespacedName, bool) {
	owner := metav1.GetControllerOfNoCopy(o)
	if owner == nil || owner.Kind != "JobFlow" || owner.APIVersion != flowv1.GroupVersion.String() {
		return types.NamespacedName{}, false
	}
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: owner.Name}, true
}
