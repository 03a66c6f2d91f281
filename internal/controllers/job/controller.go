package job

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/expect"
	"k8s4r.io/k8s4r/internal/controllers/progress"
	"k8s4r.io/k8s4r/internal/controllers/remember"
	"k8s4r.io/k8s4r/internal/controllers/wake"
	"k8s4r.io/k8s4r/internal/lifecycle"
)

// Name of the controller.
const Name = "job"

// indexOwner is the field by which the cache finds the groups of a job.
const indexOwner = "metadata.controller.uid"

// Controller creates the TaskGroups of Jobs and writes their status.
type Controller struct {
	client.Client
	// Live reads what the cache may not show yet.
	Live     client.Reader
	Now      func() time.Time
	Recorder events.EventRecorder
	// Tick is the least time between two writes of a status that only count.
	// 0 means DefaultTick.
	Tick time.Duration
	// Concurrency is the number of Jobs that are worked on at a time.
	Concurrency int
	// Archives has a job that has ended stay until its condition Archived is true.
	Archives bool

	expect *expect.Set
	memory *remember.Set[memory]
}

// memory is what no object says of a job.
type memory struct {
	lastStatus time.Time
	taken      map[string]bool
}

// Add starts the controller with the manager.
func (c *Controller) Add(mgr ctrl.Manager) error {
	if c.Tick == 0 {
		c.Tick = DefaultTick
	}
	c.expect = expect.New(c.Now, mgr.GetLogger().WithName(Name))
	c.memory = remember.New(newMemory)
	err := mgr.GetFieldIndexer().IndexField(context.Background(), &v1alpha1.TaskGroup{}, indexOwner, func(o client.Object) []string {
		if owner := metav1.GetControllerOf(o); owner != nil {
			return []string{string(owner.UID)}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("index task groups by owner: %w", err)
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named(Name).
		For(&v1alpha1.Job{}).
		Owns(&v1alpha1.TaskGroup{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: c.Concurrency}).
		Complete(c)
}

// Reconcile brings one Job a step on.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	w, err := c.observe(ctx, req.NamespacedName)
	if err != nil || w == nil {
		return reconcile.Result{}, err
	}
	now := c.Now()
	steps := Plan(now, c.Tick, *w)
	again, err := c.apply(ctx, w.Job, steps)
	if err != nil {
		return reconcile.Result{}, err
	}
	if again {
		return wake.At(now, now), nil
	}
	return wake.At(steps.WakeAt, now), nil
}

// observe reads what a decision about the job depends on. It returns nil when
// there is nothing to decide.
func (c *Controller) observe(ctx context.Context, k types.NamespacedName) (*World, error) {
	var j v1alpha1.Job
	err := c.Get(ctx, k, &j)
	if apierrors.IsNotFound(err) {
		c.expect.Forget(c.memory.Forget(k))
		return nil, nil
	}
	if err != nil || c.expect.Stale(j.UID, j.ResourceVersion) {
		return nil, err
	}
	var groups v1alpha1.TaskGroupList
	if err := c.List(ctx, &groups, client.InNamespace(k.Namespace), client.MatchingFields{indexOwner: string(j.UID)}); err != nil {
		return nil, fmt.Errorf("list task groups: %w", err)
	}
	w := &World{Job: &j, Archives: c.Archives, Groups: map[string]*v1alpha1.TaskGroup{}}
	for i := range groups.Items {
		g := &groups.Items[i]
		w.Groups[g.Spec.GroupName] = g
		c.expect.Created(j.UID, g.Name)
	}
	w.Creating = c.expect.Creating(j.UID)
	if w.Awaited, err = c.awaited(ctx, &j); err != nil {
		return nil, err
	}
	c.remember(&j, func(m *memory) { w.Taken, w.LastStatus = m.names(), m.lastStatus })
	return w, nil
}

// awaited tells whether the job is a step of a flow that has not recorded its end yet.
// Of a flow that is gone, or goes, nothing is waited for.
func (c *Controller) awaited(ctx context.Context, j *v1alpha1.Job) (bool, error) {
	owner := metav1.GetControllerOf(j)
	goes := j.Spec.TTLSecondsAfterFinished != nil && j.Status.CompletedAt != nil
	if !goes || owner == nil || owner.Kind != "JobFlow" || owner.APIVersion != flowv1.GroupVersion.String() {
		return false, nil
	}
	var f flowv1.JobFlow
	if err := c.Get(ctx, client.ObjectKey{Namespace: j.Namespace, Name: owner.Name}, &f); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return f.UID == owner.UID && f.DeletionTimestamp == nil && !f.Status.Recorded(j.Name, string(j.UID)), nil
}

// remember runs f on what is remembered of a job.
func (c *Controller) remember(j *v1alpha1.Job, f func(*memory)) {
	c.memory.Of(client.ObjectKeyFromObject(j), j.UID, f)
}

func newMemory() memory { return memory{taken: map[string]bool{}} }

func (m *memory) names() map[string]bool {
	out := make(map[string]bool, len(m.taken))
	for name := range m.taken {
		out[name] = true
	}
	return out
}

// apply creates groups first: their tasks can start while the status is
// written. It tells whether to look again at once.
func (c *Controller) apply(ctx context.Context, j *v1alpha1.Job, steps Steps) (again bool, err error) {
	for _, why := range steps.Why {
		ctrl.LoggerFrom(ctx).V(1).Info(why)
	}
	var errs []error
	for _, g := range steps.Create {
		met, err := c.create(ctx, j, g)
		again = again || met
		errs = append(errs, err)
	}
	for _, g := range steps.Update {
		errs = append(errs, c.update(ctx, g))
	}
	errs = append(errs, c.writeStatus(ctx, j, steps))
	if steps.Delete {
		errs = append(errs, c.remove(ctx, j))
	}
	return again, errors.Join(errs...)
}

// remove deletes this job as it was seen, and no later one of its name: one that
// was requeued meanwhile stays.
func (c *Controller) remove(ctx context.Context, j *v1alpha1.Job) error {
	err := c.Delete(ctx, j, client.Preconditions{UID: &j.UID, ResourceVersion: &j.ResourceVersion}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete job %s: %w", j.Name, err)
	}
	return nil
}

func (c *Controller) writeStatus(ctx context.Context, j *v1alpha1.Job, steps Steps) error {
	if steps.Status == nil {
		return nil
	}
	j.Status = *steps.Status
	if written, err := c.expect.UpdateStatus(ctx, c, j); !written {
		return err
	}
	c.remember(j, func(m *memory) { m.lastStatus = c.Now() })
	c.tell(j, steps)
	return nil
}

// ReasonRefused is the reason of the event about a wish that is not possible.
const ReasonRefused = "WishRefused"

// tell makes events of what has been written.
func (c *Controller) tell(j *v1alpha1.Job, steps Steps) {
	for _, change := range steps.Changes {
		kind := corev1.EventTypeNormal
		if change.To == lifecycle.JobFailed {
			kind = corev1.EventTypeWarning
		}
		c.Recorder.Eventf(j, nil, kind, progress.Word(change.To), "Run", "%s", change.Why)
	}
	if steps.Refused != "" {
		c.Recorder.Eventf(j, nil, corev1.EventTypeWarning, ReasonRefused, "Wish", "%s", steps.Refused)
	}
}

// create creates one group. It tells whether the name was somebody else's, so
// that another one is to be used.
func (c *Controller) create(ctx context.Context, j *v1alpha1.Job, g *v1alpha1.TaskGroup) (met bool, err error) {
	name := g.Name
	c.expect.Create(j.UID, name)
	err = c.Create(ctx, g)
	if err == nil {
		return false, nil
	}
	c.expect.Created(j.UID, name)
	if apierrors.IsAlreadyExists(err) {
		return c.meet(ctx, j, name)
	}
	return false, fmt.Errorf("create task group %s: %w", name, err)
}

// update changes one group.
func (c *Controller) update(ctx context.Context, g *v1alpha1.TaskGroup) error {
	err := c.Update(ctx, g)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil // somebody was faster; the watch brings it
	}
	if err != nil {
		return fmt.Errorf("update task group %s: %w", g.Name, err)
	}
	return nil
}

// meet looks at who holds the name. Our own group is good news.
func (c *Controller) meet(ctx context.Context, j *v1alpha1.Job, name string) (bool, error) {
	var other v1alpha1.TaskGroup
	if err := c.Live.Get(ctx, client.ObjectKey{Namespace: j.Namespace, Name: name}, &other); err != nil {
		return false, fmt.Errorf("get task group %s: %w", name, err)
	}
	if metav1.IsControlledBy(&other, j) {
		return false, nil
	}
	var known bool
	c.remember(j, func(m *memory) { known, m.taken[name] = m.taken[name], true })
	if known {
		return false, fmt.Errorf("create task group %s: the name is held by another owner", name)
	}
	return true, nil
}
