package task

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/kit"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/placement"
	"k8s4r.io/k8s4r/internal/core/taskstate"
	"k8s4r.io/k8s4r/internal/platform/uptime"
)

// Name is the name of the controller.
const Name = "task"

// Index fields of Tasks. The first two contain only Tasks that have not ended, and the first also those
// with a stop that is not confirmed.
const (
	indexRobot    = "spec.targetRobot" // and the robot of the lost attempt
	indexJob      = "spec.jobName"
	indexAllOfJob = "spec.jobName of all"
	indexReplica  = "replica"
)

// indexName is the index field of Robots by name, across namespaces.
const indexName = "metadata.name"

// behindInterval is the delay of the retry after errSchedulerBehind.
const behindInterval = 50 * time.Millisecond

// explanationsPerSecond bounds the writes that only explain why a Task waits.
const explanationsPerSecond = 20

// robotScheduler is the part of the cluster scheduler that the controller needs.
type robotScheduler interface {
	// SetupWithManager starts the scheduler with the manager.
	SetupWithManager(mgr ctrl.Manager) error
	// EnablePreemption lets the scheduler choose tasks that this controller evicts.
	EnablePreemption()
	// NotifyTasks sets the function that is called for each Task with a new decision.
	NotifyTasks(f func(namespace, name string))
	// IsBehind reports whether the Task's robot was reserved for an older version of it.
	IsBehind(t *v1alpha1.Task) bool
	// Assignment returns the robot reserved for a waiting Task, or why it has none.
	Assignment(task types.NamespacedName) (robot string, rejected *placement.Diagnosis)
	// HasCapableRobot reports whether any robot other than the failed ones could ever run
	// the Task. Known is false until the informers have synced.
	HasCapableRobot(t *v1alpha1.Task, failed []string) (capable, known bool)
	// Eviction returns why the Task must leave its robot, and whether it is preempted. If the reason is empty,
	// it may stay.
	Eviction(task types.NamespacedName) (reason string, isPreempted bool)
	// OnlineSince returns since when the namespace has had a robot online, or zero.
	OnlineSince(namespace string) time.Time
	// BetterRobot returns the name of the robot that placement prefers of two for the Task, or "".
	BetterRobot(t *v1alpha1.Task, a, b *v1alpha1.Robot) string
	// PendingReplicaRobot returns the robot on which other tasks of the replica are about
	// to start.
	PendingReplicaRobot(t *v1alpha1.Task) string
}

// Controller observes Tasks and writes what Plan decides.
type Controller struct {
	client.Client
	// Live reads from the API server, past the cache.
	Live      client.Reader
	Scheduler robotScheduler
	Now       func() time.Time
	// Uptime measures for how long robots are out of contact. If nil, it is uptime.OfProcess.
	Uptime func() time.Duration
	// Heartbeats has the HeartbeatSlices of the robots. If nil, there are none.
	Heartbeats *kit.Heartbeats
	Recorder   events.EventRecorder
	// RecoveryTime is how long robots may take to reconnect after an outage of all of them: no
	// lost attempt is replaced before a robot has been online for that long.
	RecoveryTime time.Duration
	// FirstAttempt returns the lowest number of a new attempt. If nil, 1.
	FirstAttempt func() int32
	// Concurrency is the number of Tasks that are reconciled at the same time.
	Concurrency int

	expect   *kit.Expectations
	explain  *rate.Limiter
	contacts *Contacts
	windows  kit.Windows
}

// Add starts the controller and its scheduler with the manager.
func (c *Controller) Add(mgr ctrl.Manager) error {
	c.expect = kit.NewExpectations(c.Now, mgr.GetLogger().WithName(Name))
	c.explain = rate.NewLimiter(explanationsPerSecond, explanationsPerSecond)
	c.Scheduler.EnablePreemption()
	if c.Uptime == nil {
		c.Uptime = uptime.OfProcess
	}
	c.contacts = NewContacts(c.Uptime, c.Heartbeats)
	if err := errors.Join(c.addIndexes(mgr), c.Heartbeats.Watch(mgr), c.contacts.watchRobots(mgr)); err != nil {
		return err
	}
	if err := c.Scheduler.SetupWithManager(mgr); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named(Name).
		For(&v1alpha1.Task{}).
		Watches(&v1alpha1.Task{}, handler.EnqueueRequestsFromMapFunc(c.tasksOfReplica), taskPredicate()).
		Watches(&v1alpha1.Robot{}, handler.EnqueueRequestsFromMapFunc(c.tasksOfRobot), robotPredicate()).
		Watches(&v1alpha1.Job{}, c.jobHandler()).
		Watches(&v1alpha1.TaskGroup{}, handler.EnqueueRequestsFromMapFunc(c.tasksOfGroup), groupPredicate()).
		WatchesRawSource(source.Func(c.watchScheduler)).
		WithOptions(controller.Options{MaxConcurrentReconciles: c.Concurrency}).
		Complete(c)
}

// taskIndexes are the values of a Task in each index. Empty ones are left out.
var taskIndexes = map[string]func(*v1alpha1.Task) []string{
	indexRobot:    robotsOfTask,
	indexJob:      jobOfUnendedTask,
	indexAllOfJob: func(t *v1alpha1.Task) []string { return []string{t.Spec.JobName} },
	indexReplica:  func(t *v1alpha1.Task) []string { return []string{taskstate.ReplicaOf(t).String()} },
}

// robotsOfTask returns the robots whose phase matters to a Task: that of the current attempt, that of the
// lost one, and that of a stop that is not confirmed.
func robotsOfTask(t *v1alpha1.Task) (robots []string) {
	if u := t.Status.UnconfirmedStop; u != nil {
		robots = append(robots, u.Robot)
	}
	if lifecycle.TaskState(t.Status.State).IsTerminal() {
		return robots
	}
	robots = append(robots, t.Spec.TargetRobot)
	if o := t.Status.FindAttempt(t.Status.LostAttempt); o != nil && o.Robot != t.Spec.TargetRobot {
		robots = append(robots, o.Robot)
	}
	return robots
}

func jobOfUnendedTask(t *v1alpha1.Task) []string {
	if lifecycle.TaskState(t.Status.State).IsTerminal() {
		return nil
	}
	return []string{t.Spec.JobName}
}

func (c *Controller) addIndexes(mgr ctrl.Manager) error {
	for name, values := range taskIndexes {
		err := mgr.GetFieldIndexer().IndexField(context.Background(), &v1alpha1.Task{}, name, func(o client.Object) []string {
			return slices.DeleteFunc(values(o.(*v1alpha1.Task)), func(v string) bool { return v == "" })
		})
		if err != nil {
			return fmt.Errorf("index tasks by %s: %w", name, err)
		}
	}
	err := mgr.GetFieldIndexer().IndexField(context.Background(), &v1alpha1.Robot{}, indexName, func(o client.Object) []string {
		return []string{o.GetName()}
	})
	if err != nil {
		return fmt.Errorf("index robots by name: %w", err)
	}
	return nil
}

// watchScheduler enqueues Tasks for which the scheduler has a new decision.
func (c *Controller) watchScheduler(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	c.Scheduler.NotifyTasks(func(namespace, name string) {
		queue.Add(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}})
	})
	return nil
}

// Reconcile plans for one Task and writes the result.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	w, err := c.observeTask(ctx, req.NamespacedName)
	if errors.Is(err, errSchedulerBehind) {
		return reconcile.Result{RequeueAfter: behindInterval}, nil
	}
	if err != nil || w == nil {
		return reconcile.Result{}, err
	}
	now := c.Now()
	actions := Plan(now, *w)
	if actions.ReliesOnSelfStop {
		if err := c.readRobotsLive(ctx, w); err != nil {
			return reconcile.Result{}, err
		}
		actions = Plan(now, *w)
	}
	if err := c.applyActions(ctx, w.Task, actions); err != nil {
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			return reconcile.Result{}, nil // changed by another client; the watch event triggers another plan
		}
		return reconcile.Result{}, err
	}
	return kit.RequeueAt(actions.RequeueAt, now), nil
}
