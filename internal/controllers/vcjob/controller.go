package vcjob

import (
	"context"
	"crypto/rsa"
	"crypto/sha256"
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
	"k8s4r.io/k8s4r/internal/controllers/kit"
)

// Name is the name of the controller.
const Name = "vcjob"

// Index fields of the cache.
const (
	indexPods     = "vcjob.pods.owner"
	indexCommands = "vcjob.commands.target"
	indexClaims   = "vcjob.jobs.claim"
)

// Controller creates the Pods of Jobs and writes their status.
type Controller struct {
	client.Client
	// Live reads from the API server what the cache may not show yet.
	Live     client.Reader
	Now      func() time.Time
	Recorder events.EventRecorder
	// Tick is the least time between two status writes that only change counts. 0 means
	// DefaultTick.
	Tick time.Duration
	// Concurrency is the number of Jobs that are reconciled concurrently.
	Concurrency int
	// GenerateKey returns a new key of SSHKeyBits for the plugin ssh.
	GenerateKey func() (*rsa.PrivateKey, error)
	// Archives keeps a finished Job until it is marked as archived.
	Archives bool

	expect  *kit.Expectations
	memory  *kit.ObjectMemory[memory]
	volcano *kit.PeerOperator
}

// objectsHash is the hash of the objects that were last ensured. Zero: none, or unknown. The objects
// themselves may have a megabyte, and private keys.
type objectsHash [sha256.Size]byte

// memory holds what is in no object. Losing it costs at most one reconcile or write.
type memory struct {
	lastStatusWrite time.Time
	command         *PendingCommand
	rejection       string
	ensuredObjects  objectsHash
	evictedAt       map[string]time.Time
}

// Add starts the controller with the manager.
func (c *Controller) Add(mgr ctrl.Manager) error {
	if c.Tick == 0 {
		c.Tick = DefaultTick
	}
	c.expect = kit.NewExpectations(c.Now, mgr.GetLogger().WithName(Name))
	c.memory = kit.NewObjectMemory(newMemory)
	c.volcano = newPeerOperator()
	if err := c.volcano.AddLeaseCache(mgr); err != nil {
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
		{&corev1.Pod{}, indexPods, kit.ControllerUIDs("Job")},
		{&busv1.Command{}, indexCommands, targetJobNames},
		{&batchv1.Job{}, indexClaims, func(o client.Object) []string { return namedClaims(&o.(*batchv1.Job).Spec) }},
	} {
		if err := indexer.IndexField(context.Background(), i.of, i.field, i.by); err != nil {
			return fmt.Errorf("index %s: %w", i.field, err)
		}
	}
	return nil
}

// Reconcile plans and applies the next actions for one Job.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	now := c.Now()
	if until, err := c.volcano.YieldUntil(ctx, now); err != nil || until.After(now) {
		return kit.RequeueAt(until, now), err
	}
	in, err := c.observe(ctx, req.NamespacedName)
	if err != nil || in == nil {
		return reconcile.Result{}, err
	}
	actions := Plan(now, c.Tick, *in)
	again, err := c.apply(ctx, in, actions)
	if err != nil {
		return reconcile.Result{}, err
	}
	if again {
		return kit.RequeueAt(now, now), nil
	}
	return kit.RequeueAt(actions.RequeueAt, now), nil
}

// updateMemory calls f with the memory of a Job.
func (c *Controller) updateMemory(j *batchv1.Job, f func(*memory)) {
	c.memory.Update(client.ObjectKeyFromObject(j), j.UID, f)
}

func newMemory() memory { return memory{} }
