package task

import (
	"context"
	"errors"
	"fmt"
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
	"k8s4r.io/k8s4r/internal/controllers/expect"
	"k8s4r.io/k8s4r/internal/controllers/wake"
	"k8s4r.io/k8s4r/internal/lifecycle"
)

// Name of the controller.
const Name = "task"

// The fields by which the cache finds Tasks: the first two only those that have
// not ended.
const (
	indexRobot    = "spec.targetRobot"
	indexJob      = "spec.jobName"
	indexAllOfJob = "spec.jobName of all"
	indexReplica  = "replica"
)

// indexName is the field by which the cache finds the Robots of one name in all
// namespaces.
const indexName = "metadata.name"

// tooEarly is the pause before another look at a Task that errTooEarly put off.
const tooEarly = 50 * time.Millisecond

// explanations bounds the writes a second that only say why a Task waits.
const explanations = 20

// Controller writes what Plan decides.
type Controller struct {
	client.Client
	// Live reads past the cache.
	Live      client.Reader
	Scheduler *Scheduler
	Now       func() time.Time
	Recorder  events.EventRecorder
	// Settle is how long robots need to come back after an outage of all of them:
	// nothing is replaced before one has been in contact for that long.
	Settle time.Duration
	// Concurrency is the number of Tasks that are written at a time.
	Concurrency int

	expect  *expect.Set
	explain *rate.Limiter
}

// Add starts the controller and its scheduler with the manager.
func (c *Controller) Add(mgr ctrl.Manager) error {
	c.expect = expect.New(c.Now, mgr.GetLogger().WithName(Name))
	c.explain = rate.NewLimiter(explanations, explanations)
	c.Scheduler.Preempt()
	if err := c.index(mgr); err != nil {
		return err
	}
	if err := c.feed(mgr); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named(Name).
		For(&v1alpha1.Task{}).
		Watches(&v1alpha1.Task{}, handler.EnqueueRequestsFromMapFunc(c.ofReplica), whenStateChanges()).
		Watches(&v1alpha1.Robot{}, handler.EnqueueRequestsFromMapFunc(c.ofRobot), whenPhaseChanges()).
		Watches(&v1alpha1.Job{}, c.jobHandler()).
		Watches(&v1alpha1.TaskGroup{}, handler.EnqueueRequestsFromMapFunc(c.ofGroup), whenItConcernsTasks()).
		WatchesRawSource(source.Func(c.listen)).
		WithOptions(controller.Options{MaxConcurrentReconciles: c.Concurrency}).
		Complete(c)
}

func (c *Controller) index(mgr ctrl.Manager) error {
	live := func(t *v1alpha1.Task, value string) string {
		if lifecycle.TaskState(t.Status.State).Terminal() {
			return ""
		}
		return value
	}
	fields := map[string]func(*v1alpha1.Task) string{
		indexRobot:    func(t *v1alpha1.Task) string { return live(t, t.Spec.TargetRobot) },
		indexJob:      func(t *v1alpha1.Task) string { return live(t, t.Spec.JobName) },
		indexAllOfJob: func(t *v1alpha1.Task) string { return t.Spec.JobName },
		indexReplica:  func(t *v1alpha1.Task) string { return replicaOf(t).String() },
	}
	for name, value := range fields {
		err := mgr.GetFieldIndexer().IndexField(context.Background(), &v1alpha1.Task{}, name, func(o client.Object) []string {
			if v := value(o.(*v1alpha1.Task)); v != "" {
				return []string{v}
			}
			return nil
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

// feed connects the scheduler to the informers.
func (c *Controller) feed(mgr ctrl.Manager) error {
	s := c.Scheduler
	for obj, h := range map[client.Object]toolsHandler{
		&v1alpha1.Task{}:      s.taskHandler(),
		&v1alpha1.TaskGroup{}: s.groupHandler(),
		&v1alpha1.Robot{}:     s.robotHandler(),
		&v1alpha1.Job{}:       s.jobHandler(),
	} {
		informer, err := mgr.GetCache().GetInformer(context.Background(), obj)
		if err != nil {
			return fmt.Errorf("informer of %T: %w", obj, err)
		}
		registration, err := informer.AddEventHandler(h)
		if err != nil {
			return fmt.Errorf("watch %T: %w", obj, err)
		}
		s.synced = append(s.synced, registration.HasSynced)
	}
	return mgr.Add(s)
}

// listen lets the scheduler wake the controller.
func (c *Controller) listen(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	c.Scheduler.listen(func(namespace, name string) {
		queue.Add(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}})
	})
	return nil
}

// Reconcile brings one Task a step on.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	w, err := c.observe(ctx, req.NamespacedName)
	if errors.Is(err, errTooEarly) {
		return reconcile.Result{RequeueAfter: tooEarly}, nil
	}
	if err != nil || w == nil {
		return reconcile.Result{}, err
	}
	now := c.Now()
	steps := Plan(now, *w)
	if steps.Fenced {
		if err := c.lookAgain(ctx, w); err != nil {
			return reconcile.Result{}, err
		}
		steps = Plan(now, *w)
	}
	if err := c.apply(ctx, w.Task, steps); err != nil {
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			return reconcile.Result{}, nil // somebody was faster; the watch brings it
		}
		return reconcile.Result{}, err
	}
	return wake.At(steps.WakeAt, now), nil
}
