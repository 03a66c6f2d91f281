package task

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/demand"
	"k8s4r.io/k8s4r/internal/lifecycle"
)

type toolsHandler = cache.ResourceEventHandler

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// errTooEarly asks for another look: the scheduler has yet to see what the watch
// has told us.
var errTooEarly = errors.New("the scheduler is behind")

// observe reads what a decision about the Task depends on. It returns nil when
// there is nothing to decide.
func (c *Controller) observe(ctx context.Context, k key) (*World, error) {
	var t v1alpha1.Task
	if err := c.Get(ctx, k, &t); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if c.expect.Stale(t.UID, t.ResourceVersion) {
		return nil, nil
	}
	w := &World{Task: &t}
	var err error
	if w.Group, err = c.group(ctx, &t); err != nil {
		return nil, err
	}
	if w.Job, err = c.job(ctx, &t, w.Group); err != nil {
		return nil, err
	}
	state := lifecycle.TaskState(t.Status.State).Normal()
	if state.Terminal() && !w.mayRevive(state) {
		return nil, nil
	}
	if err := c.observeReplica(ctx, w); err != nil {
		return nil, err
	}
	if state.Placeable() {
		if c.Scheduler.behind(&t) {
			return nil, errTooEarly
		}
		w.Seat, w.Refusal = c.Scheduler.seat(k)
		w.MayTell = c.mayTell(&t, w.refusal())
	}
	if state == lifecycle.TaskExited || w.excludes() {
		var known bool
		if w.Capable, known = c.Scheduler.capable(&t, w.failing()); !known {
			return nil, errTooEarly
		}
	}
	if w.robotKey, err = c.robot(ctx, w); err != nil {
		return nil, err
	}
	if w.Robot, err = readRobot(ctx, c, w.robotKey); err != nil {
		return nil, err
	}
	if state.Active() {
		w.Evict = w.evict(c.Scheduler.unwanted(k))
	}
	return w, c.observeLost(ctx, w, state)
}

// observeLost reads what only a task with a lost robot, or with runs on more than
// one, depends on.
func (c *Controller) observeLost(ctx context.Context, w *World, state lifecycle.TaskState) (err error) {
	t := w.Task
	if state == lifecycle.TaskUnknown {
		w.ContactSince, w.Settle = c.Scheduler.contactSince(t.Namespace), c.Settle
	}
	if o := t.Status.Entry(t.Status.Original); o != nil {
		if w.Origin, err = readRobot(ctx, c, robotOf(t, o)); err != nil {
			return err
		}
	}
	if w.contested() {
		w.Better = c.Scheduler.better(t, t.Status.Entry(t.Status.Original).Robot, t.RobotOfAttempt())
	}
	if (state.Placeable() || state == lifecycle.TaskExited) && w.disconnect().stopAfter > 0 {
		w.Elsewhere, err = c.elsewhere(ctx, t)
	}
	return err
}

// contested tells whether the choice between an original and what took its place
// goes by their robots.
func (w *World) contested() bool {
	s := &w.Task.Status
	return s.Original != 0 && s.Entry(s.Original) != nil && w.disconnect().reconcile == v1alpha1.BestScore
}

// elsewhere are the attempts of a Task, which is on no robot, of which no end is
// known.
func (c *Controller) elsewhere(ctx context.Context, t *v1alpha1.Task) (open []Elsewhere, err error) {
	for i := range t.Status.Attempts {
		a := &t.Status.Attempts[i]
		if a.FinishedAt != nil || a.Robot == "" {
			continue
		}
		e := Elsewhere{Attempt: a.Attempt, Name: a.Robot, key: robotOf(t, a)}
		if e.Robot, err = readRobot(ctx, c, e.key); err != nil {
			return nil, err
		}
		open = append(open, e)
	}
	return open, nil
}

// evict is why the Task must leave its robot: an operator wants it to, or drains
// the robot, or the scheduler has a reason.
func (w *World) evict(unwanted string) string {
	switch {
	case w.Task.Spec.Evict > 0 && w.Task.Spec.Evict == w.Task.Status.Attempt:
		return "it is to leave its robot"
	case w.Robot != nil && w.Robot.Spec.Drain:
		return "robot " + w.Robot.Name + " is drained"
	}
	return unwanted
}

// mayRevive tells whether a task that has ended may be put back.
func (w *World) mayRevive(s lifecycle.TaskState) bool {
	return w.jobState() == lifecycle.JobRequeueing || staged(w.Group) ||
		s == lifecycle.TaskFailed && w.Group != nil && len(w.Group.Status.BlockedRobots) > 0
}

// excludes tells whether there are robots that the task is not given because
// of what has failed there.
func (w *World) excludes() bool {
	return len(w.Task.Status.FailedRobots) > 0 || w.Group != nil && len(w.Group.Status.BlockedRobots) > 0
}

func (w *World) robotName() string {
	if w.Seat != "" {
		return w.Seat
	}
	if lifecycle.TaskState(w.Task.Status.State).Active() {
		return w.lastRobot()
	}
	return w.Task.Spec.TargetRobot
}

// lookAgain reads the robots past the cache, on whose fences a decision counts. By
// a cache that is behind, a fence has fallen that the robot's next heartbeat had put
// off, and two attempts ran.
func (c *Controller) lookAgain(ctx context.Context, w *World) (err error) {
	if w.Robot, err = readRobot(ctx, c.Live, w.robotKey); err != nil {
		return err
	}
	for i := range w.Elsewhere {
		e := &w.Elsewhere[i]
		if e.Robot, err = readRobot(ctx, c.Live, e.key); err != nil {
			return err
		}
	}
	return nil
}

// readRobot returns the Robot, or nil: there is none.
func readRobot(ctx context.Context, from client.Reader, k key) (*v1alpha1.Robot, error) {
	if k.Name == "" {
		return nil, nil
	}
	var r v1alpha1.Robot
	err := from.Get(ctx, k, &r, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get robot %s: %w", k, err)
	}
	return &r, nil
}

// robotOf is the Robot of an attempt, whether it is still shared or not: what runs
// there goes on. One of the same id in another namespace is another: a tenant who
// had one would be sent what ran on a robot that was deleted.
func robotOf(t *v1alpha1.Task, a *v1alpha1.TaskAttempt) key {
	return key{Namespace: t.RobotNamespace(a.Attempt), Name: a.Robot}
}

// robot is the one that the Task is on, was given or names. An id is one in the
// cluster: of two the older counts.
func (c *Controller) robot(ctx context.Context, w *World) (key, error) {
	t, k := w.Task, key{Namespace: w.Task.Namespace, Name: w.robotName()}
	if k.Name == "" {
		return k, nil
	}
	if a := t.Status.Entry(t.Status.Attempt); w.Seat == "" && lifecycle.TaskState(t.Status.State).Active() && a != nil && a.Robot == k.Name {
		return robotOf(t, a), nil
	}
	var found v1alpha1.RobotList
	if err := c.List(ctx, &found, client.MatchingFields{indexName: k.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return k, fmt.Errorf("find robot %s: %w", k.Name, err)
	}
	if all := found.Items; len(all) > 0 {
		first := slices.MinFunc(all, func(a, b v1alpha1.Robot) int { return a.CompareAge(&b) })
		k.Namespace = first.Namespace
	}
	return k, nil
}

// job is the Task's own Job. A later one of the same name is not: its tasks
// are others. A Task that says nothing of its owner belongs to the Job that it
// names.
func (c *Controller) job(ctx context.Context, t *v1alpha1.Task, g *v1alpha1.TaskGroup) (*v1alpha1.Job, error) {
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
	owner := metav1.GetControllerOf(t)
	if owner != nil && owner.Kind == groupKind {
		if g == nil {
			return nil, nil
		}
		owner = metav1.GetControllerOf(g)
	}
	if owner != nil && owner.Kind == "Job" && owner.UID != j.UID {
		return nil, nil
	}
	return &j, nil
}

const groupKind = "TaskGroup"

// group is the Task's own TaskGroup.
func (c *Controller) group(ctx context.Context, t *v1alpha1.Task) (*v1alpha1.TaskGroup, error) {
	owner := metav1.GetControllerOf(t)
	if owner == nil || owner.Kind != groupKind {
		return nil, nil
	}
	var g v1alpha1.TaskGroup
	err := c.Get(ctx, key{Namespace: t.Namespace, Name: owner.Name}, &g, client.UnsafeDisableDeepCopy)
	switch {
	case apierrors.IsNotFound(err), err == nil && g.UID != owner.UID:
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get task group %s: %w", owner.Name, err)
	}
	return &g, nil
}

// staged tells whether the tasks of a replica wait for each other. Nil: there is no
// group.
func staged(g *v1alpha1.TaskGroup) bool { return g != nil && g.Spec.Staged() }

// observeReplica reads what only a task depends on whose replica has tasks that wait
// for each other.
func (c *Controller) observeReplica(ctx context.Context, w *World) error {
	t := w.Task
	if !staged(w.Group) {
		return nil
	}
	var tasks v1alpha1.TaskList
	err := c.List(ctx, &tasks, client.InNamespace(t.Namespace), client.MatchingFields{indexReplica: replicaOf(t).String()}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return fmt.Errorf("list the replica of task %s: %w", t.Name, err)
	}
	for i := range tasks.Items {
		if s := &tasks.Items[i]; s.UID != t.UID && metav1.IsControlledBy(s, w.Group) {
			w.Siblings = append(w.Siblings, *s)
		}
	}
	if lifecycle.TaskState(t.Status.State).Terminal() && t.Spec.Holds != nil {
		w.Awaited = c.Scheduler.awaited(t)
	}
	return nil
}

// ofReplica names the Tasks that wait for what becomes of this one.
func (c *Controller) ofReplica(ctx context.Context, o client.Object) []reconcile.Request {
	t := o.(*v1alpha1.Task)
	g, err := c.group(ctx, t)
	if err != nil || !staged(g) {
		return nil
	}
	return c.tasks(ctx, t.Namespace, client.MatchingFields{indexReplica: replicaOf(t).String()})
}

// whenStateChanges lets in what may matter to the other tasks of a replica.
func whenStateChanges() builder.Predicates {
	return builder.WithPredicates(predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			return e.ObjectOld.(*v1alpha1.Task).Status.State != e.ObjectNew.(*v1alpha1.Task).Status.State
		},
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	})
}

// mayTell spreads the writes that only explain over time.
func (c *Controller) mayTell(t *v1alpha1.Task, refusal string) bool {
	return untold(c.Now(), t, refusal) && c.explain.AllowN(c.Now(), 1)
}

// ofRobot names the Tasks that care about a robot's phase, in all namespaces.
func (c *Controller) ofRobot(ctx context.Context, r client.Object) []reconcile.Request {
	return c.tasks(ctx, metav1.NamespaceAll, client.MatchingFields{indexRobot: r.GetName()})
}

// jobHandler wakes the Tasks that a job's new state concerns.
func (c *Controller) jobHandler() handler.EventHandler {
	changed := func(ctx context.Context, before, after lifecycle.JobState, o client.Object, q queue) {
		index := concerned(before, after)
		if index == "" {
			return
		}
		for _, r := range c.tasks(ctx, o.GetNamespace(), client.MatchingFields{index: o.GetName()}) {
			q.Add(r)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) {
			changed(ctx, "", stateOf(e.Object), e.Object, q)
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			if before, after := stateOf(e.ObjectOld), stateOf(e.ObjectNew); before != after {
				changed(ctx, before, after, e.ObjectNew, q)
			}
		},
	}
}

// concerned is the index of the Tasks that a job's new state concerns: those
// that wait or run when it stops or holds, and all when they may be put back or
// it goes on, for one that has failed comes back when its robot was blocked
// meanwhile. Empty: none.
func concerned(before, after lifecycle.JobState) string {
	switch {
	case after == lifecycle.JobRequeueing, before != "" && after.Starts() && !before.Starts():
		return indexAllOfJob
	case after.Stops(), after.Holds():
		return indexJob
	}
	return ""
}

func stateOf(o client.Object) lifecycle.JobState {
	return lifecycle.JobState(o.(*v1alpha1.Job).Status.State)
}

// ofGroup names the Tasks that a group's news concern: those that wait for a
// robot that is blocked now, those that failed there, and those that waited
// until somebody had looked at the group's change.
func (c *Controller) ofGroup(ctx context.Context, g client.Object) []reconcile.Request {
	return c.tasks(ctx, g.GetNamespace(), client.MatchingFields{indexAllOfJob: g.(*v1alpha1.TaskGroup).Spec.JobName})
}

// whenItConcernsTasks lets in a blocklist that grows, and a change that was
// observed.
func whenItConcernsTasks() builder.Predicates {
	return builder.WithPredicates(predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, after := e.ObjectOld.(*v1alpha1.TaskGroup), e.ObjectNew.(*v1alpha1.TaskGroup)
			seen := before.Status.ObservedGeneration
			return len(after.Status.BlockedRobots) > len(before.Status.BlockedRobots) ||
				seen != 0 && seen != after.Status.ObservedGeneration
		},
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	})
}

// tasks are those that an index finds.
func (c *Controller) tasks(ctx context.Context, namespace string, by client.MatchingFields) []reconcile.Request {
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

// whenPhaseChanges leaves out heartbeats, and lets in a drain, a revocation and whom
// the robot serves.
func whenPhaseChanges() builder.Predicates {
	return builder.WithPredicates(predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*v1alpha1.Robot), e.ObjectNew.(*v1alpha1.Robot)
		return demand.Phase(before) != demand.Phase(after) || before.Spec.Drain != after.Spec.Drain ||
			!slices.Equal(before.Users(), after.Users())
	}})
}
