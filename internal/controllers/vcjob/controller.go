package vcjob

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	busv1 "k8s4r.io/k8s4r/api/bus/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/expect"
	"k8s4r.io/k8s4r/internal/controllers/remember"
	"k8s4r.io/k8s4r/internal/controllers/standback"
	"k8s4r.io/k8s4r/internal/controllers/wake"
)

// Name of the controller.
const Name = "vcjob"

// The fields by which the cache finds what belongs to a Job.
const (
	indexPods     = "vcjob.pods.owner"
	indexCommands = "vcjob.commands.target"
	indexClaims   = "vcjob.jobs.claim"
)

// Controller creates the Pods of Jobs and writes their status.
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
	// Archives has a Job that has finished stay until it is marked as archived.
	Archives bool

	expect  *expect.Set
	memory  *remember.Set[memory]
	volcano *standback.Rival
}

// memory is what no object says of a Job. What is lost with it costs no more
// than a look or a write.
type memory struct {
	lastStatus time.Time
	order      *Order
	refused    string
	ensured    string
	evicted    map[string]time.Time
}

// Add starts the controller with the manager.
func (c *Controller) Add(mgr ctrl.Manager) error {
	if c.Tick == 0 {
		c.Tick = DefaultTick
	}
	c.expect = expect.New(c.Now, mgr.GetLogger().WithName(Name))
	c.memory = remember.New(newMemory)
	c.volcano = volcano()
	if err := c.volcano.Follow(mgr); err != nil {
		return err
	}
	if err := addIndices(mgr.GetFieldIndexer()); err != nil {
		return err
	}
	claim := &metav1.PartialObjectMetadata{}
	claim.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"))
	return ctrl.NewControllerManagedBy(mgr).
		Named(Name).
		For(&batchv1.Job{}).
		Watches(&corev1.Pod{}, c.onPod()).
		Watches(&busv1.Command{}, onCommand()).
		Watches(&flowv1.JobFlow{}, onFlow()).
		WatchesMetadata(claim, c.onClaim()).
		WithOptions(controller.Options{MaxConcurrentReconciles: c.Concurrency}).
		Complete(c)
}

func addIndices(indexer client.FieldIndexer) error {
	for _, i := range []struct {
		of    client.Object
		field string
		by    client.IndexerFunc
	}{
		{&corev1.Pod{}, indexPods, ownerOf},
		{&busv1.Command{}, indexCommands, targetOf},
		{&batchv1.Job{}, indexClaims, func(o client.Object) []string { return namedClaims(&o.(*batchv1.Job).Spec) }},
	} {
		if err := indexer.IndexField(context.Background(), i.of, i.field, i.by); err != nil {
			return fmt.Errorf("index %s: %w", i.field, err)
		}
	}
	return nil
}

func ownerOf(o client.Object) []string {
	if owner := metav1.GetControllerOf(o); owner != nil {
		return []string{string(owner.UID)}
	}
	return nil
}

// Reconcile brings one Job a step on.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	now := c.Now()
	if until, err := c.volcano.Until(ctx, now); err != nil || until.After(now) {
		return wake.At(until, now), err
	}
	w, err := c.observe(ctx, req.NamespacedName)
	if err != nil || w == nil {
		return reconcile.Result{}, err
	}
	steps := Plan(now, c.Tick, *w)
	again, err := c.apply(ctx, w, steps)
	if err != nil {
		return reconcile.Result{}, err
	}
	if again {
		return wake.At(now, now), nil
	}
	return wake.At(steps.WakeAt, now), nil
}

// remember runs f on what is remembered of a Job.
func (c *Controller) remember(j *batchv1.Job, f func(*memory)) {
	c.memory.Of(client.ObjectKeyFromObject(j), j.UID, f)
}

func newMemory() memory { return memory{} }
