package task

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/placement/apiconv"
	"k8s4r.io/k8s4r/internal/core/taskstate"
	"k8s4r.io/k8s4r/internal/core/window"
)

type key = types.NamespacedName

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// errSchedulerBehind causes a retry: the scheduler has not processed an event that this
// controller has.
var errSchedulerBehind = errors.New("the scheduler is behind")

// observeTask reads the input of Plan. It returns nil if there is nothing to decide.
func (c *Controller) observeTask(ctx context.Context, k key) (*Input, error) {
	var t v1alpha1.Task
	if err := c.Get(ctx, k, &t); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if c.expect.IsStale(t.UID, t.ResourceVersion) {
		return nil, nil
	}
	w := &Input{Task: &t}
	if c.FirstAttempt != nil {
		w.FirstAttempt = c.FirstAttempt()
	}
	var err error
	if w.Group, err = c.readGroup(ctx, &t); err != nil {
		return nil, err
	}
	if w.Job, err = c.readJob(ctx, &t, w.Group); err != nil {
		return nil, err
	}
	state := lifecycle.TaskState(t.Status.State).OrPending()
	if state.IsTerminal() && !w.canRequeue(state) && t.Status.UnconfirmedStop == nil && len(taskstate.OtherOpenAttempts(&t)) == 0 {
		return nil, nil
	}
	if err := c.observeReplica(ctx, w); err != nil {
		return nil, err
	}
	if err := c.observeScheduler(w, state); err != nil {
		return nil, err
	}
	if w.robotKey, err = c.findRobotKey(ctx, w); err != nil {
		return nil, err
	}
	if w.Robot, err = readRobot(ctx, c, w.robotKey); err != nil {
		return nil, err
	}
	c.observeContact(w)
	if state.IsActive() {
		if err := c.observeEviction(ctx, w, k); err != nil {
			return nil, err
		}
	}
	return w, c.observeLost(ctx, w, state)
}

// observeScheduler reads the scheduler's decision on a waiting task, and whether a robot could
// ever run it.
func (c *Controller) observeScheduler(w *Input, state lifecycle.TaskState) error {
	if state.IsPlaceable() {
		if c.Scheduler.IsBehind(w.Task) {
			return errSchedulerBehind
		}
		w.ReservedRobot, w.Rejected = c.Scheduler.Assignment(client.ObjectKeyFromObject(w.Task))
		w.MayExplain = c.mayExplain(w.Task, w.explainPlacement())
	}
	if state == lifecycle.TaskExited || w.excludesRobots() {
		var known bool
		if w.HasCapableRobot, known = c.Scheduler.HasCapableRobot(w.Task, w.failedRobots()); !known {
			return errSchedulerBehind
		}
	}
	return nil
}

// observeLost reads what matters only for tasks with a lost robot or with several attempts, and for those
// that end or have ended.
func (c *Controller) observeLost(ctx context.Context, w *Input, state lifecycle.TaskState) (err error) {
	t := w.Task
	if state == lifecycle.TaskUnknown {
		w.OnlineSince, w.RecoveryTime = c.Scheduler.OnlineSince(t.Namespace), c.RecoveryTime
	}
	if o := t.Status.FindAttempt(t.Status.LostAttempt); o != nil {
		if w.LostAttemptRobot, err = readRobot(ctx, c, robotKeyOf(t, o)); err != nil {
			return err
		}
	}
	if w.needsRobotComparison() {
		w.BetterRobot = c.Scheduler.BetterRobot(t, w.LostAttemptRobot, w.Robot)
	}
	if (state.IsPlaceable() || state == lifecycle.TaskExited) && w.disconnectPolicy().stopAfter > 0 {
		if w.OtherAttempts, err = c.readOpenAttempts(ctx, t); err != nil {
			return err
		}
	}
	if w.mayHaveUnconfirmedStop(state) {
		w.OpenAttempts, err = c.readOpenAttempts(ctx, t)
	}
	return err
}

// needsRobotComparison reports whether the choice between a lost attempt and its replacement
// depends on their robots. Only then Input.Robot is that of the replacement.
func (w *Input) needsRobotComparison() bool {
	s := &w.Task.Status
	return lifecycle.TaskState(s.State).IsActive() && s.LostAttempt != 0 && s.FindAttempt(s.LostAttempt) != nil && w.disconnectPolicy().reconcile == v1alpha1.ReconcileBestScore
}

// readOpenAttempts returns the attempts of a Task that are not known to have ended.
func (c *Controller) readOpenAttempts(ctx context.Context, t *v1alpha1.Task) (open []OtherAttempt, err error) {
	for i := range t.Status.Attempts {
		a := &t.Status.Attempts[i]
		if a.FinishedAt != nil || a.Robot == "" {
			continue
		}
		e := OtherAttempt{Attempt: a.Attempt, Name: a.Robot, key: robotKeyOf(t, a)}
		if e.Robot, err = readRobot(ctx, c, e.key); err != nil {
			return nil, err
		}
		e.Contact = c.contacts.ObserveRobot(e.key, e.Robot)
		open = append(open, e)
	}
	return open, nil
}

// observeEviction reads why the Task must leave its robot, and until when the eviction may happen.
func (c *Controller) observeEviction(ctx context.Context, w *Input, task types.NamespacedName) error {
	w.setEviction(c.Scheduler.Eviction(task))
	if w.EvictionWaitsFor != v1alpha1.EvictionWaitsForWindows || w.Robot == nil {
		return nil
	}
	calendar, err := c.windows.Read(ctx, c)
	if err != nil {
		return err
	}
	now, robot := c.Now(), window.RobotFrom(w.Robot)
	state := calendar.At(now).StateOf(robot.Namespace, robot.Labels)
	if w.WindowClosesAt = state.ClosesAt; !state.IsOpen {
		w.WindowClosesAt = now
	}
	return nil
}

// setEviction sets why the Task must leave its robot, and what that waits for: an eviction was requested, the
// robot is drained, or the reason of the scheduler. Of several reasons, one that waits for nothing counts.
func (w *Input) setEviction(fromScheduler string, isPreempted bool) {
	w.EvictionReason, w.EvictionWaitsFor = "", ""
	isRequested, waitsFor := w.isEvictionRequested(), w.Task.Spec.EvictionWaitsFor
	switch {
	case isRequested && waitsFor == "":
		w.EvictionReason = "its eviction was requested"
	case w.Robot != nil && w.Robot.Spec.Drain:
		w.EvictionReason = "robot " + w.Robot.Name + " is drained"
	case fromScheduler != "" && !isPreempted:
		w.EvictionReason = fromScheduler
	case isRequested:
		w.EvictionReason, w.EvictionWaitsFor = "its eviction was requested", waitsFor
	case fromScheduler != "":
		w.EvictionReason, w.EvictionWaitsFor = fromScheduler, v1alpha1.EvictionWaitsForWindows
	}
}

// canRequeue reports whether a task that has ended may have to run again.
func (w *Input) canRequeue(s lifecycle.TaskState) bool {
	return w.jobState() == lifecycle.JobRequeueing || isStaged(w.Group, w.Task) ||
		s == lifecycle.TaskFailed && w.Group != nil && len(w.Group.Status.BlockedRobots) > 0
}

// excludesRobots reports whether robots are excluded because of failures there.
func (w *Input) excludesRobots() bool {
	return len(w.Task.Status.FailedRobots) > 0 || w.Group != nil && len(w.Group.Status.BlockedRobots) > 0
}

func (w *Input) robotName() string {
	if w.ReservedRobot != "" {
		return w.ReservedRobot
	}
	if lifecycle.TaskState(w.Task.Status.State).IsActive() {
		return w.lastRobot()
	}
	return w.Task.Spec.TargetRobot
}

// readRobotsLive reads the robots past the cache on whose self-stop a decision relies, and their
// slices. A stale cache would miss a heartbeat that postponed the stop, and two attempts would run.
func (c *Controller) readRobotsLive(ctx context.Context, w *Input) (err error) {
	if w.Robot, err = c.readRobotLive(ctx, w.robotKey); err != nil {
		return err
	}
	c.observeContact(w)
	for i := range w.OtherAttempts {
		e := &w.OtherAttempts[i]
		if e.Robot, err = c.readRobotLive(ctx, e.key); err != nil {
			return err
		}
		e.Contact = c.contacts.ObserveRobot(e.key, e.Robot)
	}
	return nil
}

// readRobotLive reads a Robot and its slice past the cache. It returns nil if the Robot does not exist.
func (c *Controller) readRobotLive(ctx context.Context, k key) (*v1alpha1.Robot, error) {
	r, err := readRobot(ctx, c.Live, k)
	if err != nil {
		return nil, err
	}
	return r, c.Heartbeats.Refresh(ctx, r, 0)
}

// observeContact observes for how long the Task's robot is out of contact, and the Task as it is.
func (c *Controller) observeContact(w *Input) {
	if w.robotKey.Name != "" {
		w.Contact, w.Ages = c.contacts.ObserveRobot(w.robotKey, w.Robot), c.contacts.ObserveTask(w.Task)
	}
}

// readRobot returns the Robot, or nil if it does not exist.
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

// robotKeyOf returns the key of an attempt's Robot, even if it is no longer shared with the Task's
// namespace. A robot of the same id in another namespace must not receive the task.
func robotKeyOf(t *v1alpha1.Task, a *v1alpha1.TaskAttempt) key {
	return key{Namespace: t.NamespaceOfRobot(a.Attempt), Name: a.Robot}
}

// findRobotKey returns the key of Input.Robot. Ids are unique in the cluster: of two robots with
// the same id the older counts.
func (c *Controller) findRobotKey(ctx context.Context, w *Input) (key, error) {
	t, k := w.Task, key{Namespace: w.Task.Namespace, Name: w.robotName()}
	if k.Name == "" {
		return k, nil
	}
	if a := t.Status.FindAttempt(t.Status.Attempt); w.ReservedRobot == "" && lifecycle.TaskState(t.Status.State).IsActive() && a != nil && a.Robot == k.Name {
		return robotKeyOf(t, a), nil
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

// readJob returns the Task's own Job, or nil if it does not exist, even if there is a later one of
// the same name. A Task without an owner belongs to the Job that it names.
func (c *Controller) readJob(ctx context.Context, t *v1alpha1.Task, g *v1alpha1.TaskGroup) (*v1alpha1.Job, error) {
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

// readGroup returns the Task's own TaskGroup, or nil if it does not exist.
func (c *Controller) readGroup(ctx context.Context, t *v1alpha1.Task) (*v1alpha1.TaskGroup, error) {
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

// isStaged reports whether the tasks of a replica wait for each other, by the definition of its group or by
// that of a Rollout. False without a group.
func isStaged(g *v1alpha1.TaskGroup, t *v1alpha1.Task) bool {
	return g != nil && (g.Spec.HasStages() || len(g.Status.RolloutRevisions) > 0 && (t.Spec.Stage > 0 || t.Spec.Daemon))
}

// observeReplica reads what matters only for tasks of staged replicas.
func (c *Controller) observeReplica(ctx context.Context, w *Input) error {
	t := w.Task
	if !isStaged(w.Group, t) {
		return nil
	}
	var tasks v1alpha1.TaskList
	err := c.List(ctx, &tasks, client.InNamespace(t.Namespace), client.MatchingFields{indexReplica: taskstate.ReplicaOf(t).String()}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return fmt.Errorf("list the replica of task %s: %w", t.Name, err)
	}
	for i := range tasks.Items {
		if s := &tasks.Items[i]; s.UID != t.UID && metav1.IsControlledBy(s, w.Group) {
			w.Siblings = append(w.Siblings, *s)
		}
	}
	if lifecycle.TaskState(t.Status.State).IsTerminal() && t.Spec.ExtraResources != nil {
		w.PendingReplicaRobot = c.Scheduler.PendingReplicaRobot(t)
	}
	return nil
}

// tasksOfReplica returns the Tasks of the same replica, which may wait for this one.
func (c *Controller) tasksOfReplica(ctx context.Context, o client.Object) []reconcile.Request {
	t := o.(*v1alpha1.Task)
	g, err := c.readGroup(ctx, t)
	if err != nil || !isStaged(g, t) {
		return nil
	}
	return c.listTasks(ctx, t.Namespace, client.MatchingFields{indexReplica: taskstate.ReplicaOf(t).String()})
}

// taskPredicate admits changes that other tasks of the replica may wait for.
func taskPredicate() builder.Predicates {
	return builder.WithPredicates(predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			return concernsReplica(e.ObjectOld.(*v1alpha1.Task), e.ObjectNew.(*v1alpha1.Task))
		},
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	})
}

// concernsReplica reports whether a change of a task is one of its state, or its robot restarts a daemon,
// for which others wait.
func concernsReplica(before, after *v1alpha1.Task) bool {
	return before.Status.State != after.Status.State || after.Spec.Daemon && taskstate.IsRunning(before) != taskstate.IsRunning(after)
}

// mayExplain limits the rate of writes that only explain.
func (c *Controller) mayExplain(t *v1alpha1.Task, e explanation) bool {
	return e.isDue(c.Now(), t) && c.explain.AllowN(c.Now(), 1)
}

// tasksOfRobot returns the Tasks of all namespaces that are bound to a robot, or whose lost attempt
// is there.
func (c *Controller) tasksOfRobot(ctx context.Context, r client.Object) []reconcile.Request {
	return c.listTasks(ctx, metav1.NamespaceAll, client.MatchingFields{indexRobot: r.GetName()})
}

// jobHandler enqueues the Tasks that a change of their job's state affects.
func (c *Controller) jobHandler() handler.EventHandler {
	changed := func(ctx context.Context, before, after lifecycle.JobState, o client.Object, q queue) {
		index := indexForJobChange(before, after)
		if index == "" {
			return
		}
		for _, r := range c.listTasks(ctx, o.GetNamespace(), client.MatchingFields{index: o.GetName()}) {
			q.Add(r)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) {
			changed(ctx, "", jobStateOf(e.Object), e.Object, q)
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			if before, after := jobStateOf(e.ObjectOld), jobStateOf(e.ObjectNew); before != after {
				changed(ctx, before, after, e.ObjectNew, q)
			}
		},
	}
}

// indexForJobChange returns the index of the Tasks that a job's new state affects, or "": the
// unfinished ones if it stops or pauses, and all if they may run again. A failed task runs again
// if its robot was blocked meanwhile.
func indexForJobChange(before, after lifecycle.JobState) string {
	switch {
	case after == lifecycle.JobRequeueing, before != "" && after.StartsTasks() && !before.StartsTasks():
		return indexAllOfJob
	case after.CancelsTasks(), after.PausesTasks():
		return indexJob
	}
	return ""
}

// jobStateOf returns the state of a Job object.
func jobStateOf(o client.Object) lifecycle.JobState {
	return lifecycle.JobState(o.(*v1alpha1.Job).Status.State)
}

// tasksOfGroup returns the Tasks of the group's job. A change of the group affects those that wait
// for a robot that is blocked now, that failed there, or that waited for the group's controller.
func (c *Controller) tasksOfGroup(ctx context.Context, g client.Object) []reconcile.Request {
	return c.listTasks(ctx, g.GetNamespace(), client.MatchingFields{indexAllOfJob: g.(*v1alpha1.TaskGroup).Spec.JobName})
}

// groupPredicate admits a blocklist that grows, and a generation that the group's controller has
// observed.
func groupPredicate() builder.Predicates {
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

// listTasks returns requests for the Tasks that an index finds.
func (c *Controller) listTasks(ctx context.Context, namespace string, by client.MatchingFields) []reconcile.Request {
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

// robotPredicate ignores heartbeats, and admits changes of phase, drain, revocation and sharing.
func robotPredicate() builder.Predicates {
	return builder.WithPredicates(predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*v1alpha1.Robot), e.ObjectNew.(*v1alpha1.Robot)
		return apiconv.EffectivePhase(before) != apiconv.EffectivePhase(after) || before.Spec.Drain != after.Spec.Drain ||
			!slices.Equal(before.UserNamespaces(), after.UserNamespaces()) ||
			before.Status.RefusesInterruptions() != after.Status.RefusesInterruptions() || !equality.Semantic.DeepEqual(before.Status.Holds, after.Status.Holds)
	}})
}
