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

// observe reads the input of a plan. It returns nil if there is nothing to decide.
func (c *Controller) observe(ctx context.Context, k types.NamespacedName) (*Input, error) {
	in := &Input{Flow: &flowv1.JobFlow{}, Archives: c.Archives}
	err := c.Get(ctx, k, in.Flow)
	if apierrors.IsNotFound(err) {
		c.expect.ForgetOwner(c.memory.ForgetObject(k))
		c.prober.SetTargets(k, nil)
		return nil, nil
	}
	if err != nil || c.expect.IsStale(in.Flow.UID, in.Flow.ResourceVersion) {
		return nil, err
	}
	if in.Jobs, err = c.listJobs(ctx, in.Flow); err != nil {
		return nil, err
	}
	in.Graph = c.memory.flowGraph(in.Flow, NewGraph)
	now := c.Now()
	c.memory.Update(k, in.Flow.UID, func(m *memory) { m.fillInput(now, in) })
	c.observeCreates(in)
	if err := c.findMissingJobs(ctx, now, in); err != nil {
		return nil, err
	}
	if err := c.collectOutputs(ctx, in); err != nil {
		return nil, err
	}
	in.Probes = c.probeResults(k, in.Graph)
	in.Templates, err = c.readTemplates(ctx, in.Flow.Namespace, RequiredTemplates(now, *in))
	return in, err
}

// listJobs returns the Jobs that the flow controls, by UID. Jobs of other owners are
// ignored even if their name matches.
func (c *Controller) listJobs(ctx context.Context, f *flowv1.JobFlow) (map[types.UID]*Job, error) {
	own := []client.ListOption{
		client.InNamespace(f.Namespace), client.MatchingFields{fieldOwner: string(f.UID)},
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
		out[pods.Items[i].UID] = summarizePodJob(&pods.Items[i])
	}
	for i := range robots.Items {
		out[robots.Items[i].UID] = summarizeRobotJob(&robots.Items[i])
	}
	return out, nil
}

// observeCreates clears the expectations of Jobs that the cache shows by now. A retired
// Job does not count: its successor has the same name.
func (c *Controller) observeCreates(in *Input) {
	retired := make(map[types.UID]bool, len(in.Flow.Status.Steps))
	for i := range in.Flow.Status.Steps {
		retired[toUID(in.Flow.Status.Steps[i].RetiredUID)] = true
	}
	for id, j := range in.Jobs {
		if !retired[id] {
			c.expect.ObserveCreate(in.Flow.UID, j.Name)
		}
	}
	in.Creating = c.expect.PendingCreates(in.Flow.UID)
}

// findMissingJobs reads Jobs that the status records and the cache does not show from the
// API server. The cache may be stale, and to treat an existing Job as deleted would fail
// its step.
func (c *Controller) findMissingJobs(ctx context.Context, now time.Time, in *Input) error {
	for _, r := range unseenJobs(in) {
		exists, err := c.jobExists(ctx, in.Flow, r)
		if err != nil {
			return err
		}
		if !exists {
			in.MissingSince[r.key()] = now
			c.memory.Update(client.ObjectKeyFromObject(in.Flow), in.Flow.UID, func(m *memory) { m.missingSince[r.key()] = now })
		}
	}
	return nil
}

// probeResults returns the results of all steps with probes.
func (c *Controller) probeResults(k types.NamespacedName, g *Graph) map[string]probe.Result {
	var out map[string]probe.Result
	for i := range g.steps {
		if s := &g.steps[i]; s.DependsOn.EffectiveProbe() != nil {
			if out == nil {
				out = map[string]probe.Result{}
			}
			out[s.Name] = c.prober.Result(k, s.Name)
		}
	}
	return out
}

// jobExists reports whether the API server has the Job, of either kind. Without a UID, any
// Job of that name counts that the flow controls.
func (c *Controller) jobExists(ctx context.Context, f *flowv1.JobFlow, r recordedJob) (bool, error) {
	for _, o := range []client.Object{&batchv1.Job{}, &robotv1.Job{}} {
		err := c.Live.Get(ctx, client.ObjectKey{Namespace: f.Namespace, Name: r.name}, o)
		if err == nil && (o.GetUID() == r.uid || r.uid == "" && metav1.IsControlledBy(o, f)) {
			return true, nil
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return false, fmt.Errorf("get job %s: %w", r.name, err)
		}
	}
	return false, nil
}

// readTemplates returns those of the templates that exist.
func (c *Controller) readTemplates(ctx context.Context, namespace string, keys []TemplateKey) (map[TemplateKey]*Template, error) {
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

// flowOwner returns key and UID of the flow that controls a Job.
func flowOwner(o client.Object) (types.NamespacedName, types.UID, bool) {
	ref := metav1.GetControllerOf(o)
	if ref == nil || ref.Kind != "JobFlow" || ref.APIVersion != flowv1.GroupVersion.String() {
		return types.NamespacedName{}, "", false
	}
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: ref.Name}, ref.UID, true
}
