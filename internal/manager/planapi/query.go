package planapi

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/jobrevision"
	"k8s4r.io/k8s4r/internal/core/naming"
	"k8s4r.io/k8s4r/internal/manager/preview"
	"k8s4r.io/k8s4r/internal/platform/access"
	"k8s4r.io/k8s4r/internal/protocol/plan"
	"k8s4r.io/k8s4r/internal/scheduler"
)

// query is the state of one request.
type query struct {
	*Handler
	user *access.User
	key  types.NamespacedName // of the Job
	// next is the Job of the request. Nil until the user is authorized.
	next *v1alpha1.Job
}

var jobs = v1alpha1.GroupVersion.WithResource("jobs").GroupResource()

// planJob returns the plan for a Job, as far as the user may see it. was is the existing Job, or nil.
func (q *query) planJob(ctx context.Context, was *v1alpha1.Job) (*plan.Plan, error) {
	v, err := q.findVisible(ctx)
	if err != nil {
		return nil, err
	}
	w, err := q.observe(ctx, was)
	if err != nil {
		return nil, err
	}
	w.HideValues = !v.allRobots
	ctx, cancel := context.WithTimeout(ctx, computeTime)
	defer cancel()
	w.IsExpired = func() bool { return ctx.Err() != nil }
	w.Place = func(now time.Time, j *v1alpha1.Job, groups []scheduler.PreviewGroup) scheduler.Preview {
		return q.Placer.PreviewPlacement(ctx, now, j, groups)
	}
	p, err := preview.PlanJob(q.Now(), *w, q.nextVersion(was))
	if err != nil {
		return nil, err
	}
	v.hideFrom(p)
	return p, nil
}

// nextVersion returns the Job as the API server would store it. What a client may not write is that of the
// existing Job, whatever the request says.
func (q *query) nextVersion(was *v1alpha1.Job) *v1alpha1.Job {
	j := q.next.DeepCopy()
	j.Status, j.DeletionTimestamp, j.OwnerReferences = v1alpha1.JobStatus{}, nil, nil
	if was == nil {
		j.UID, j.Generation, j.CreationTimestamp = "preview", 1, metav1.Time{Time: q.Now()}
		return j
	}
	j.UID, j.CreationTimestamp, j.ResourceVersion = was.UID, was.CreationTimestamp, was.ResourceVersion
	j.Status, j.DeletionTimestamp, j.OwnerReferences = *was.Status.DeepCopy(), was.DeletionTimestamp, was.OwnerReferences
	j.Generation = was.Generation + 1
	return j
}

// authorize returns the existing Job, or nil, if the user may apply the Job of the request. It reveals whether
// there is one only to users who may.
func (q *query) authorize(ctx context.Context) (*v1alpha1.Job, error) {
	verbs := map[string]bool{}
	for _, verb := range []string{"create", "get", "update", "patch"} {
		allowed, err := q.isAllowed(ctx, q.key.Namespace, verb, jobs.Resource, q.key.Name)
		if err != nil {
			return nil, err
		}
		verbs[verb] = allowed
	}
	mayChange := verbs["get"] && (verbs["update"] || verbs["patch"])
	if !verbs["create"] && !mayChange {
		return nil, q.forbid("create Jobs, or get and update them,")
	}
	var was v1alpha1.Job
	err := q.Live.Get(ctx, q.key, &was)
	switch {
	case apierrors.IsNotFound(err) && verbs["create"]:
		return nil, nil
	case apierrors.IsNotFound(err):
		return nil, q.forbid("create Jobs")
	case err != nil:
		return nil, err
	case !mayChange:
		return nil, q.forbid("get and update this Job, which exists,")
	}
	return &was, nil
}

func (q *query) forbid(what string) error {
	return apierrors.NewForbidden(jobs, q.key.Name, fmt.Errorf("user %q may not %s in namespace %q", q.user.Name, what, q.key.Namespace))
}

func (q *query) isAllowed(ctx context.Context, namespace, verb, resource, name string) (bool, error) {
	do := authorizationv1.ResourceAttributes{Namespace: namespace, Verb: verb, Group: jobs.Group, Resource: resource, Name: name}
	allowed, err := q.Gate.IsAllowed(ctx, q.user, do)
	if err != nil {
		return false, apierrors.NewServiceUnavailable(err.Error())
	}
	return allowed, nil
}

// observe reads what exists around the Job.
func (q *query) observe(ctx context.Context, was *v1alpha1.Job) (*preview.World, error) {
	w := &preview.World{Job: was, Config: q.Config, Groups: map[string]*v1alpha1.TaskGroup{}, Tasks: map[types.UID][]*v1alpha1.Task{}}
	if v1alpha1.RunsOnEveryRobot(q.next.Spec.Type) {
		var robots v1alpha1.RobotList
		if err := q.Cache.List(ctx, &robots, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("list robots: %w", err)
		}
		w.Robots = robots.Items
	}
	if was == nil {
		return w, nil
	}
	if err := q.awaitCache(ctx, was); err != nil {
		return nil, err
	}
	if err := q.observeGroups(ctx, w); err != nil {
		return nil, err
	}
	return w, q.observeRevisions(ctx, w)
}

// The time for which a plan waits for the manager's cache, and between two looks at it.
const (
	cacheWait  = 3 * time.Second
	cachePause = 50 * time.Millisecond
)

// awaitCache waits until the cache shows the definition of the Job that the API server has. Otherwise the plan
// after a change would be one of before it.
func (q *query) awaitCache(ctx context.Context, was *v1alpha1.Job) error {
	ctx, cancel := context.WithTimeout(ctx, cacheWait)
	defer cancel()
	for {
		var cached v1alpha1.Job
		err := q.Cache.Get(ctx, client.ObjectKeyFromObject(was), &cached, client.UnsafeDisableDeepCopy)
		if err == nil && cached.UID == was.UID && cached.Generation >= was.Generation && cached.Status.ObservedGeneration >= was.Status.ObservedGeneration {
			return nil
		}
		if client.IgnoreNotFound(err) != nil && ctx.Err() == nil {
			return fmt.Errorf("get job: %w", err)
		}
		select {
		case <-ctx.Done():
			return apierrors.NewTooManyRequests("the manager has not seen the last change of the Job yet", retrySeconds)
		case <-time.After(cachePause):
		}
	}
}

func (q *query) observeGroups(ctx context.Context, w *preview.World) error {
	label := client.MatchingLabels{v1alpha1.LabelJob: naming.LabelValue(w.Job.Name)}
	in := client.InNamespace(w.Job.Namespace)
	var groups v1alpha1.TaskGroupList
	if err := q.Cache.List(ctx, &groups, in, label, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list task groups: %w", err)
	}
	for i := range groups.Items {
		if g := &groups.Items[i]; metav1.IsControlledBy(g, w.Job) {
			w.Groups[g.Spec.GroupName] = g
		}
	}
	var tasks v1alpha1.TaskList
	if err := q.Cache.List(ctx, &tasks, in, label, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list tasks: %w", err)
	}
	if n := len(tasks.Items); n > maxTasks {
		return apierrors.NewBadRequest(fmt.Sprintf("the Job has %d tasks: a plan covers at most %d", n, maxTasks))
	}
	for i := range tasks.Items {
		if owner := metav1.GetControllerOf(&tasks.Items[i]); owner != nil {
			w.Tasks[owner.UID] = append(w.Tasks[owner.UID], &tasks.Items[i])
		}
	}
	return nil
}

func (q *query) observeRevisions(ctx context.Context, w *preview.World) error {
	if !jobrevision.KeepsRevisions(w.Job.Spec.Type) {
		return nil
	}
	in := client.InNamespace(w.Job.Namespace)
	var all appsv1.ControllerRevisionList
	if err := q.Cache.List(ctx, &all, in, client.MatchingLabels{v1alpha1.LabelPrefixedJob: naming.LabelValue(w.Job.Name)}, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list revisions: %w", err)
	}
	for i := range all.Items {
		if r := &all.Items[i]; jobrevision.IsOfJob(r, w.Job) {
			w.Revisions = append(w.Revisions, r)
		}
	}
	var rollouts v1alpha1.RolloutList
	if err := q.Cache.List(ctx, &rollouts, in); err != nil {
		return fmt.Errorf("list rollouts: %w", err)
	}
	for i := range rollouts.Items {
		if rollouts.Items[i].Spec.Target.Name == w.Job.Name {
			w.Rollouts = append(w.Rollouts, rollouts.Items[i])
		}
	}
	return nil
}
