package jobflow

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/jobflow/probe"
)

// observe reads what a decision about the flow depends on. It returns nil when there
// is nothing to decide.
func (c *Controller) observe(ctx context.Context, k types.NamespacedName) (*World, error) {
	w := &World{Flow: &flowv1.JobFlow{}, Archives: c.Archives}
	err := c.Get(ctx, k, w.Flow)
	if apierrors.IsNotFound(err) {
		c.expect.Forget(c.memory.Forget(k))
		c.prober.Keep(k, nil)
		return nil, nil
	}
	if err != nil || c.expect.Stale(w.Flow.UID, w.Flow.ResourceVersion) {
		return nil, err
	}
	if w.Jobs, err = c.jobs(ctx, w.Flow); err != nil {
		return nil, err
	}
	w.Graph = c.memory.graphOf(w.Flow, NewGraph)
	now := c.Now()
	c.memory.Of(k, w.Flow.UID, func(m *memory) { m.recall(now, w) })
	c.expected(w)
	if err := c.search(ctx, now, w); err != nil {
		return nil, err
	}
	if err := c.collect(ctx, w); err != nil {
		return nil, err
	}
	w.Probes = c.probes(k, w.Graph)
	w.Templates, err = c.templates(ctx, w.Flow.Namespace, Needs(now, *w))
	return w, err
}

// jobs are the flow's own, by UID: another's Job of the right name is none
// (contract §6.36).
func (c *Controller) jobs(ctx context.Context, f *flowv1.JobFlow) (map[types.UID]*Job, error) {
	own := []client.ListOption{
		client.InNamespace(f.Namespace), client.MatchingFields{indexOwner: string(f.UID)},
		client.UnsafeDisableDeepCopy, // they are only read, and a flow may have a thousand
	}
	var pods batchv1.JobList
	if err := c.List(ctx, &pods, own...); err != nil {
		return nil, fmt.Errorf("list jobs: %w", err)
	}
	var robots robotv1.JobList
	if err := c.List(ctx, &robots, own...); err != nil {
		return nil, fmt.Errorf("list robot jobs: %w", err)
	}
	out := make(map[types.UID]*Job, len(pods.Items)+len(robots.Items))
	for i := range pods.Items {
		out[pods.Items[i].UID] = podsJob(&pods.Items[i])
	}
	for i := range robots.Items {
		out[robots.Items[i].UID] = robotsJob(&robots.Items[i])
	}
	return out, nil
}

// expected takes note of the Jobs that show by now. One that is to go does not count:
// its successor has the same name.
func (c *Controller) expected(w *World) {
	retired := make(map[types.UID]bool, len(w.Flow.Status.Steps))
	for i := range w.Flow.Status.Steps {
		retired[uid(w.Flow.Status.Steps[i].RetiredUID)] = true
	}
	for id, j := range w.Jobs {
		if !retired[id] {
			c.expect.Created(w.Flow.UID, j.Name)
		}
	}
	w.Creating = c.expect.Creating(w.Flow.UID)
}

// search asks the API server for Jobs that the status knows and the cache does not
// have. The cache may be behind, and to take a Job for deleted that is not would fail
// its step.
func (c *Controller) search(ctx context.Context, now time.Time, w *World) error {
	ended := map[string]*flowv1.JobStatus{}
	for i := range w.Flow.Status.JobStatusList {
		if j := &w.Flow.Status.JobStatusList[i]; flowv1.Ended(j.State) {
			ended[j.Name] = j
		}
	}
	for i := range w.Flow.Status.Steps {
		s := &w.Flow.Status.Steps[i]
		id, name := uid(s.JobUID), JobName(w.Flow.Name, s.Name)
		if id == "" || w.Jobs[id] != nil || w.Gone[id] != nil || w.Creating[name] || ended[name] != nil && ended[name].Is(s.JobUID) {
			continue
		}
		if _, known := w.Missing[id]; known {
			continue
		}
		exists, err := c.exists(ctx, client.ObjectKey{Namespace: w.Flow.Namespace, Name: name}, id)
		if err != nil {
			return err
		}
		if !exists {
			w.Missing[id] = now
			c.memory.Of(client.ObjectKeyFromObject(w.Flow), w.Flow.UID, func(m *memory) { m.missing[id] = now })
		}
	}
	return nil
}

// probes are what is known of the steps that have some.
func (c *Controller) probes(k types.NamespacedName, g *Graph) map[string]probe.Result {
	var out map[string]probe.Result
	for i := range g.steps {
		if s := &g.steps[i]; s.DependsOn != nil && s.DependsOn.Probe != nil {
			if out == nil {
				out = map[string]probe.Result{}
			}
			out[s.Name] = c.prober.Result(k, s.Name)
		}
	}
	return out
}

// exists tells whether the API server has the Job, of either kind.
func (c *Controller) exists(ctx context.Context, k client.ObjectKey, id types.UID) (bool, error) {
	for _, o := range []client.Object{&batchv1.Job{}, &robotv1.Job{}} {
		err := c.Live.Get(ctx, k, o)
		if err == nil && o.GetUID() == id {
			return true, nil
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return false, fmt.Errorf("get job %s: %w", k.Name, err)
		}
	}
	return false, nil
}

// templates that exist of those that are asked for.
func (c *Controller) templates(ctx context.Context, namespace string, keys []TemplateKey) (map[TemplateKey]*Template, error) {
	out := make(map[TemplateKey]*Template, len(keys))
	for _, key := range keys {
		if out[key] != nil {
			continue
		}
		t := &Template{}
		var o client.Object
		if key.Kind == Robots {
			t.Robots = &robotv1.JobTemplate{}
			o = t.Robots
		} else {
			t.Pods = &flowv1.JobTemplate{}
			o = t.Pods
		}
		switch err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: key.Name}, o); {
		case err == nil:
			out[key] = t
		case !apierrors.IsNotFound(err):
			return nil, fmt.Errorf("get template %s: %w", key.Name, err)
		}
	}
	return out, nil
}

// ownerOf is the flow that a Job belongs to.
func ownerOf(o client.Object) (types.NamespacedName, types.UID, bool) {
	ref := metav1.GetControllerOf(o)
	if ref == nil || ref.Kind != "JobFlow" || ref.APIVersion != flowv1.GroupVersion.String() {
		return types.NamespacedName{}, "", false
	}
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: ref.Name}, ref.UID, true
}
