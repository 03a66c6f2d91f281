package job

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/kit"
)

// Name of the controller.
const Name = "job"

// indexOwner is the field by which the cache finds the groups of a job.
const indexOwner = "metadata.controller.uid"

// Controller creates the TaskGroups of Jobs and writes their status.
type Controller struct {
	client.Client
	// Live reads from the API server, past the cache.
	Live     client.Reader
	Now      func() time.Time
	Recorder events.EventRecorder
	// Tick is the least time between two status writes that only show progress, and before
	// the first one. 0 means DefaultTick.
	Tick time.Duration
	// Concurrency is the number of Jobs that are reconciled at the same time.
	Concurrency int
	// Archives keeps ended jobs until their condition Archived is true.
	Archives bool

	expect *kit.Expectations
	memory *kit.ObjectMemory[memory]
}

// memory is state of a job that is not stored in objects.
type memory struct {
	lastStatus time.Time // when the status was last written, or the job was first seen
	takenNames map[string]bool
}

// Add starts the controller with the manager.
func (c *Controller) Add(mgr ctrl.Manager) error {
	if c.Tick == 0 {
		c.Tick = DefaultTick
	}
	c.expect = kit.NewExpectations(c.Now, mgr.GetLogger().WithName(Name))
	c.memory = kit.NewObjectMemory(func() memory { return newMemory(c.Now()) })
	err := mgr.GetFieldIndexer().IndexField(context.Background(), &v1alpha1.TaskGroup{}, indexOwner, kit.ControllerUIDs("Job"))
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

// Reconcile reconciles one Job.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	w, err := c.observe(ctx, req.NamespacedName)
	if err != nil || w == nil {
		return reconcile.Result{}, err
	}
	now := c.Now()
	actions := Plan(now, c.Tick, *w)
	again, err := c.apply(ctx, w.Job, actions)
	if err != nil {
		return reconcile.Result{}, err
	}
	if again {
		return kit.RequeueAt(now, now), nil
	}
	return kit.RequeueAt(actions.RequeueAt, now), nil
}
