package retention

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/taskcounts"
)

// observe reads the input of Plan. It returns nil if nothing is deleted in the namespace.
func (c *Controller) observe(ctx context.Context, namespace string) (*Input, error) {
	n := &metav1.PartialObjectMetadata{}
	n.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	if err := c.Get(ctx, client.ObjectKey{Name: namespace}, n); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	limits, err := c.Limits.overrideBy(n.Annotations)
	c.reportInvalid(n, err)
	if err != nil || limits.Age == 0 || n.DeletionTimestamp != nil {
		return nil, nil //nolint:nilerr // the error is reported; a change of the namespace triggers the next plan
	}
	in := &Input{Limits: limits, Archives: c.Archives}
	for _, k := range c.selectKinds() {
		list := k.newList()
		if err := c.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("list finished %ss: %w", k.name, err)
		}
		if err := in.addFinished(k.name, list); err != nil {
			return nil, err
		}
	}
	return in, nil
}

// kind is one of the kinds whose objects are deleted.
type kind struct {
	name    string
	object  client.Object
	newList func() client.ObjectList
}

// selectKinds returns the kinds of the controllers that run.
func (c *Controller) selectKinds() (all []kind) {
	if c.Jobs {
		all = append(all, kind{"job", &v1alpha1.Job{}, func() client.ObjectList { return &v1alpha1.JobList{} }})
	}
	if c.Flows {
		all = append(all, kind{"flow", &flowv1.JobFlow{}, func() client.ObjectList { return &flowv1.JobFlowList{} }})
	}
	if c.VCJobs {
		all = append(all, kind{"vcjob", &batchv1.Job{}, func() client.ObjectList { return &batchv1.JobList{} }})
	}
	return all
}

// addFinished adds the objects of a list that have finished and that the retention may delete.
func (in *Input) addFinished(kind string, list client.ObjectList) error {
	return meta.EachListItem(list, func(item runtime.Object) error {
		o, ok := item.(client.Object)
		if !ok {
			return nil
		}
		if at, archived, ok := finishedAt(o); ok && !isExempt(o) {
			in.Finished = append(in.Finished, Object{Kind: kind, FinishedAt: at, Archived: archived, Object: o})
		}
		return nil
	})
}

// finishedAt returns when an object without a TTL of its own finished and whether its end is
// archived. An object whose spec has changed since has not: a requeue or retry may be pending.
func finishedAt(o client.Object) (at time.Time, archived, ok bool) {
	switch o := o.(type) {
	case *v1alpha1.Job:
		if o.Spec.TTLSecondsAfterFinished != nil || o.Status.CompletedAt == nil || o.Status.ObservedGeneration != o.Generation || !hasJobEnded(&o.Status) {
			return time.Time{}, false, false
		}
		return o.Status.CompletedAt.Time, o.Status.IsArchived(), true
	case *flowv1.JobFlow:
		if o.Spec.TTLSecondsAfterFinished != nil || o.Status.CompletionTime == nil || o.Status.ObservedGeneration != o.Generation || !hasFlowEnded(&o.Status) {
			return time.Time{}, false, false
		}
		return o.Status.CompletionTime.Time, o.Status.IsArchived(), true
	case *batchv1.Job:
		if o.Spec.TTLSecondsAfterFinished != nil || !lifecycle.VCJobPhase(o.Status.State.Phase).IsFinished() {
			return time.Time{}, false, false
		}
		return o.Status.State.LastTransitionTime.Time, o.IsArchived(), true
	}
	return time.Time{}, false, false
}

// hasJobEnded reports whether the job has ended and none of its tasks is still being stopped.
func hasJobEnded(s *v1alpha1.JobStatus) bool {
	var counts lifecycle.Counts
	taskcounts.AddTo(&counts, s.TaskCounts)
	return taskcounts.HasEnded(lifecycle.JobState(s.State), counts)
}

// hasFlowEnded reports whether the flow has ended and none of its Jobs is still running.
func hasFlowEnded(s *flowv1.JobFlowStatus) bool {
	for i := range s.JobStatusList {
		if state := s.JobStatusList[i].State; !flowv1.HasEnded(state) && state != batchv1.JobAborted {
			return false
		}
	}
	return lifecycle.FlowPhase(s.State.Phase).IsTerminal()
}
