package task

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/lifecycle"
)

type toolsHandler = cache.ResourceEventHandler

// observe reads what a decision about the Task depends on. It returns nil when
// there is nothing to decide.
func (c *Controller) observe(ctx context.Context, k key) (*World, error) {
	var t v1alpha1.Task
	if err := c.Get(ctx, k, &t); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	state := lifecycle.TaskState(t.Status.State).Normal()
	if c.expect.Stale(t.UID, t.ResourceVersion) || state.Terminal() {
		return nil, nil
	}
	w := &World{Task: &t}
	var err error
	if w.Job, err = c.job(ctx, &t); err != nil {
		return nil, err
	}
	if state.Placeable() {
		w.Seat, w.Refusal = c.Scheduler.seat(k)
		w.MayTell = c.mayTell(&t, w.refusal())
	}
	w.Robot, err = c.robot(ctx, k.Namespace, w.robotName())
	return w, err
}

func (w *World) robotName() string {
	if w.Seat != "" {
		return w.Seat
	}
	return w.Task.Spec.TargetRobot
}

func (c *Controller) robot(ctx context.Context, namespace, name string) (*v1alpha1.Robot, error) {
	if name == "" {
		return nil, nil
	}
	var r v1alpha1.Robot
	err := c.Get(ctx, key{Namespace: namespace, Name: name}, &r, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get robot %s: %w", name, err)
	}
	return &r, nil
}

// job is the Task's own Job. A later one of the same name is not: its tasks
// are others.
func (c *Controller) job(ctx context.Context, t *v1alpha1.Task) (*v1alpha1.Job, error) {
	name := t.Spec.JobName
	if name == "" {
		return nil, nil
	}
	var j v1alpha1.Job
	err := c.Get(ctx, key{Namespace: t.Namespace, Name: name}, &j, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get job %s: %w", name, err)
	}
	ours, err := c.belongs(ctx, t, j.UID)
	if err != nil || !ours {
		return nil, err
	}
	return &j, nil
}

// belongs follows the Task's owners up to its Job. A Task that says nothing of
// its owner belongs to the Job that it names.
func (c *Controller) belongs(ctx context.Context, t *v1alpha1.Task, job types.UID) (bool, error) {
	owner := metav1.GetControllerOf(t)
	if owner == nil || owner.Kind != "TaskGroup" {
		return owner == nil || owner.Kind != "Job" || owner.UID == job, nil
	}
	var g v1alpha1.TaskGroup
	err := c.Get(ctx, key{Namespace: t.Namespace, Name: owner.Name}, &g, client.UnsafeDisableDeepCopy)
	if err != nil {
		return false, client.IgnoreNotFound(err)
	}
	up := metav1.GetControllerOf(&g)
	return g.UID == owner.UID && (up == nil || up.UID == job), nil
}

// mayTell spreads the writes that only explain over time.
func (c *Controller) mayTell(t *v1alpha1.Task, refusal string) bool {
	return untold(c.Now(), t, refusal) && c.explain.AllowN(c.Now(), 1)
}

// ofRobot names the Tasks that care about a robot's phase.
func (c *Controller) ofRobot(ctx context.Context, r client.Object) []reconcile.Request {
	return c.live(ctx, r.GetNamespace(), client.MatchingFields{indexRobot: r.GetName()})
}

// ofJob names the Tasks that a job calls off.
func (c *Controller) ofJob(ctx context.Context, j client.Object) []reconcile.Request {
	if !lifecycle.JobState(j.(*v1alpha1.Job).Status.State).Stops() {
		return nil
	}
	return c.live(ctx, j.GetNamespace(), client.MatchingFields{indexJob: j.GetName()})
}

// live are the Tasks that have not ended.
func (c *Controller) live(ctx context.Context, namespace string, by client.MatchingFields) []reconcile.Request {
	var tasks v1alpha1.TaskList
	if err := c.List(ctx, &tasks, client.InNamespace(namespace), by, client.UnsafeDisableDeepCopy); err != nil {
		return nil // the cache has stopped, and with it the controller
	}
	out := make([]reconcile.Request, len(tasks.Items))
	for i := range tasks.Items {
		out[i].NamespacedName = client.ObjectKeyFromObject(&tasks.Items[i])
	}
	return out
}

// whenPhaseChanges leaves out heartbeats.
func whenPhaseChanges() builder.Predicates {
	return builder.WithPredicates(predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*v1alpha1.Robot), e.ObjectNew.(*v1alpha1.Robot)
		return !strings.EqualFold(before.Status.Phase, after.Status.Phase)
	}})
}

// whenStateChanges leaves out counts.
func whenStateChanges() builder.Predicates {
	return builder.WithPredicates(predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.(*v1alpha1.Job).Status.State != e.ObjectNew.(*v1alpha1.Job).Status.State
	}})
}
