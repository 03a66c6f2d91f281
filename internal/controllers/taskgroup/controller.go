package taskgroup

import (
	"context"
	"errors"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/kit"
	"k8s4r.io/k8s4r/internal/core/placement"
	"k8s4r.io/k8s4r/internal/core/rollout"
)

// Name is the name of the controller.
const Name = "taskgroup"

// Binder reserves robots for replicas that do not exist yet.
type Binder interface {
	// ReserveRobots replaces the requests of the group and returns the robots that are
	// reserved for it, by demand name.
	ReserveRobots(ctx context.Context, g *v1alpha1.TaskGroup, j *v1alpha1.Job, demands []placement.Demand) (map[string]placement.Robot, error)
	// ReleaseRobot releases the reservation of a Task that was not created.
	ReleaseRobot(namespace, task string)
	// ForgetGroup drops all requests of a group and releases its unused reservations.
	ForgetGroup(namespace, group string)
	// NotifyGroups sets the function to call when more robots were reserved for a group.
	NotifyGroups(func(namespace, name string))
}

// Controller creates the Tasks of TaskGroups and writes their status.
type Controller struct {
	client.Client
	Config
	// Live reads from the API server, past the cache.
	Live     client.Reader
	Binder   Binder
	Now      func() time.Time
	Recorder events.EventRecorder
	// Concurrency is the number of groups that are reconciled at the same time.
	Concurrency int

	expect       *kit.Expectations
	counts       *groupCounts
	robotChanges *kit.RobotChanges
	usable       usableRobots
	windows      kit.Windows
}

// Cache indexes of the groups of a job, of the jobs of a type and of the Rollouts of a job. The last one has
// a name of its own, because other controllers have such an index, too.
const (
	indexJob    = "spec.jobName"
	indexType   = "spec.type"
	indexTarget = "taskgroup.spec.target.name"
)

// Add starts the controller with the manager.
func (c *Controller) Add(mgr ctrl.Manager) error {
	c.Config = c.WithDefaults()
	c.expect = kit.NewExpectations(c.Now, mgr.GetLogger().WithName(Name))
	c.counts, c.robotChanges = newGroupCounts(), kit.NewRobotChanges()
	if err := addIndexes(mgr.GetFieldIndexer()); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named(Name).
		For(&v1alpha1.TaskGroup{}).
		Watches(&v1alpha1.Task{}, c.taskHandler()).
		Watches(&v1alpha1.Job{}, handler.EnqueueRequestsFromMapFunc(c.groupsOfJob), onJobStateChange()).
		Watches(&v1alpha1.Robot{}, c.robotChanges.Handler(c.enqueueChangedRobot)).
		Watches(&v1alpha1.Rollout{}, handler.EnqueueRequestsFromMapFunc(c.groupsOfRollout), onDecisionChange()).
		Watches(&v1alpha1.MaintenanceWindow{}, handler.EnqueueRequestsFromMapFunc(c.groupsOfWindow), onSpecChange()).
		Watches(&appsv1.ControllerRevision{}, handler.EnqueueRequestsFromMapFunc(c.groupsOfRevision), onNewRevision()).
		WatchesRawSource(source.Func(c.watchReservations)).
		WithOptions(controller.Options{MaxConcurrentReconciles: c.Concurrency}).
		Complete(c)
}

func addIndexes(fields client.FieldIndexer) error {
	return errors.Join(
		fields.IndexField(context.Background(), &v1alpha1.TaskGroup{}, indexJob, func(o client.Object) []string {
			return []string{o.(*v1alpha1.TaskGroup).Spec.JobName}
		}),
		fields.IndexField(context.Background(), &v1alpha1.Job{}, indexType, func(o client.Object) []string {
			return []string{o.(*v1alpha1.Job).Spec.Type}
		}),
		fields.IndexField(context.Background(), &v1alpha1.Rollout{}, indexTarget, func(o client.Object) []string {
			return rollout.TargetOf(o.(*v1alpha1.Rollout))
		}),
	)
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// watchReservations enqueues groups for which robots were reserved.
func (c *Controller) watchReservations(_ context.Context, q queue) error {
	c.Binder.NotifyGroups(func(namespace, name string) {
		k := types.NamespacedName{Namespace: namespace, Name: name}
		var g v1alpha1.TaskGroup
		if err := c.Get(context.Background(), k, &g, client.UnsafeDisableDeepCopy); err != nil {
			return // deleted; ForgetGroup releases its reservations
		}
		c.counts.withGroup(g.UID, func(m *groupTasks) { m.reservationCount++ })
		q.Add(reconcile.Request{NamespacedName: k})
	})
	return nil
}

// taskHandler records events of Tasks, then enqueues their group.
func (c *Controller) taskHandler() handler.EventHandler {
	record := func(o client.Object, q queue) {
		t := o.(*v1alpha1.Task)
		if owner := owningGroup(t); owner != nil {
			c.counts.withGroup(owner.UID, func(m *groupTasks) { m.recordTask(c.Now(), t) })
			c.expect.ObserveCreate(owner.UID, t.Name)
			q.Add(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: t.Namespace, Name: owner.Name}})
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { record(e.Object, q) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) { record(e.ObjectNew, q) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) {
			t := e.Object.(*v1alpha1.Task)
			if owner := owningGroup(t); owner != nil {
				c.counts.dropTask(owner.UID, t.Name)
				q.Add(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: t.Namespace, Name: owner.Name}})
			}
		},
	}
}

// Reconcile reconciles one TaskGroup.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	w, err := c.observe(ctx, req.NamespacedName)
	if err != nil || w == nil {
		return reconcile.Result{}, err
	}
	now := c.Now()
	actions := Plan(now, c.Config, *w)
	again, err := c.apply(ctx, w, actions)
	if err != nil {
		return reconcile.Result{}, err
	}
	if again {
		return kit.RequeueAt(now, now), nil
	}
	return kit.RequeueAt(actions.RequeueAt, now), nil
}
