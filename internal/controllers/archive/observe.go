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
	"k8s4r.io/k8s4r/internal/controllers/progress"
	"k8s4r.io/k8s4r/internal/lifecycle"
)

// observe reads what a decision about the object depends on.
func (c *Controller) observe(ctx context.Context, o client.Object, isGone bool) (*World, error) {
	job, err := c.jobOf(ctx, o)
	if err != nil {
		return nil, err
	}
	w := &World{Gone: isGone}
	if w.Object, err = archive.Of(o, job); err != nil {
		return nil, err
	}
	if noted, ok := c.noted.Load(o.GetUID()); ok {
		w.Noted, _ = noted.(string)
	}
	if isGone {
		return w, nil
	}
	switch o := o.(type) {
	case *v1alpha1.Task:
		// The end of its job has brought it in: after a restart nobody need look.
		w.Archived = job != nil && job.Status.Archived()
	case *v1alpha1.TaskGroup:
		w.Archived = job != nil && job.Status.Archived()
	case *v1alpha1.Job:
		err = c.observeJob(ctx, o, w)
	case *flowv1.JobFlow:
		err = c.observeFlow(ctx, o, w)
	case *batchv1.Job:
		w.Archived = o.Archived()
		w.Ends = c.VCJobs && lifecycle.VCJobPhase(o.Status.State.Phase).Finished()
	}
	return w, err
}

// jobOf is the Job of a task or a group. Nil: it has none, or that is gone.
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

// observeJob reads a job's groups and tasks, once it has ended with all of them.
func (c *Controller) observeJob(ctx context.Context, j *v1alpha1.Job, w *World) error {
	var counts lifecycle.Counts
	progress.AddTo(&counts, j.Status.TaskCounts)
	if !progress.Ended(lifecycle.JobState(j.Status.State), counts) || j.Status.CompletedAt == nil {
		return nil
	}
	if w.Archived = j.Status.Archived(); w.Archived {
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
			if err := w.add(g, j); err != nil {
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
		if !lifecycle.TaskState(t.Status.State).Terminal() {
			w.Parts = nil
			return nil // it was put back just now; its job will tell
		}
		if err := w.add(t, j); err != nil {
			return err
		}
	}
	w.Ends = true
	return nil
}

func (w *World) add(o client.Object, j *v1alpha1.Job) error {
	part, err := archive.Of(o, j)
	if err == nil {
		w.Parts = append(w.Parts, part)
	}
	return err
}

// observeFlow reads the jobs of a flow that has ended. Its end is whole once theirs are in the
// archive: the flow takes its jobs with it when it is removed.
func (c *Controller) observeFlow(ctx context.Context, f *flowv1.JobFlow, w *World) error {
	if w.Object.Outcome == "" || w.Object.Finished.IsZero() {
		return nil
	}
	if w.Archived = f.Status.Archived(); w.Archived {
		return nil
	}
	own := []client.ListOption{client.InNamespace(f.Namespace), client.MatchingFields{indexFlow: string(f.UID)}, client.UnsafeDisableDeepCopy}
	var robots v1alpha1.JobList
	if err := c.List(ctx, &robots, own...); err != nil {
		return fmt.Errorf("list jobs: %w", err)
	}
	for i := range robots.Items {
		if !robots.Items[i].Status.Archived() {
			return nil // its own end wakes us
		}
	}
	var pods batchv1.JobList
	if err := c.List(ctx, &pods, own...); err != nil {
		return fmt.Errorf("list jobs of pods: %w", err)
	}
	for i := range pods.Items {
		j := &pods.Items[i]
		if !lifecycle.VCJobPhase(j.Status.State.Phase).Rests() {
			return nil
		}
		if err := w.add(j, nil); err != nil {
			return err
		}
	}
	w.Ends = true
	return nil
}

// flowOf is the flow that an object is a step of.
func flowOf(o client.Object) (types.NamespacedName, bool) {
	owner := metav1.GetControllerOfNoCopy(o)
	if owner == nil || owner.Kind != "JobFlow" || owner.APIVersion != flowv1.GroupVersion.String() {
		return types.NamespacedName{}, false
	}
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: owner.Name}, true
}
